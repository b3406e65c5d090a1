// Paints the strips of a scene: what is narrower than a pixel is mixed, what is wide gets pattern and number.
(function (pipesim) {
  "use strict";
  const EDGED = 3, WIDE = 7, TALL = 7; // CSS pixels from which a box has an edge, and a pattern
  const LAST_COMPUTE = 3;

  // view: {left, top, width, height} of the plot in CSS pixels, its time range, its row range, pixels per pixel.
  pipesim.paint = function (context, scene, view, hidden) {
    const shown = [...scene.idle, ...scene.strips].filter((strip) => {
      const [top, bottom] = extent(view, strip);
      return bottom > view.top && top < view.top + view.height;
    });
    const styles = scene.styles.map((style) => (hidden(style.name) ? null : style));
    const width = Math.max(1, Math.round(view.width * view.ratio)), wide = [];
    if (!shown.length) return;
    const picture = pictureOf(width, shown.length), image = picture.context.createImageData(width, shown.length);
    shown.forEach((strip, line) => mix(image, line, width, view, strip, styles, wide));
    picture.context.putImageData(image, 0, 0);
    context.save();
    context.beginPath();
    context.rect(view.left, view.top, view.width, view.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    shown.forEach((strip, line) => {
      const [top, bottom] = extent(view, strip);
      context.drawImage(picture, 0, line, width, 1, view.left, top, view.width, Math.max(1 / view.ratio, bottom - top));
    });
    for (const [strip, at] of wide) dress(context, scene, view, strip, at);
    context.restore();
  };

  pipesim.toX = (view, time) => view.left + ((time - view.times[0]) / (view.times[1] - view.times[0])) * view.width;
  pipesim.toY = (view, row) => view.top + ((row - view.rows[0]) / (view.rows[1] - view.rows[0])) * view.height;

  function extent(view, strip) {
    return [pipesim.toY(view, strip.rank + strip.low), pipesim.toY(view, strip.rank + strip.high)];
  }

  let kept = null; // one line of pixels a strip, stretched to the strip's height when drawn
  function pictureOf(width, height) {
    if (!kept) {
      kept = document.createElement("canvas");
      kept.context = kept.getContext("2d", { willReadFrequently: true });
    }
    if (kept.width !== width || kept.height < height) Object.assign(kept, { width, height });
    return kept;
  }

  let sums = new Float32Array(0);

  // One line of the picture: each pixel the mixture of what it covers.
  function mix(image, line, width, view, strip, styles, wide) {
    if (sums.length < 4 * width) sums = new Float32Array(4 * width);
    sums.fill(0, 0, 4 * width);
    const from = view.times[0], scale = width / (view.times[1] - from), { start, end, style } = strip;
    const [top, bottom] = extent(view, strip);
    const edged = strip.group === "compute" && bottom - top >= TALL ? EDGED * view.ratio : Infinity;
    for (let i = pipesim.after(strip.reach, from); i < start.length && start[i] < view.times[1]; i++) {
      const look = styles[style[i]];
      if (!look) continue;
      const left = (start[i] - from) * scale, right = (end[i] - from) * scale;
      cover(width, left > 0 ? left : 0, right < width ? right : width, look.rgba);
      if (right - left >= edged) wide.push([strip, i]);
    }
    const { data } = image;
    for (let x = 0, to = 4 * width * line; x < 4 * width; x += 4, to += 4) {
      const alpha = sums[x + 3];
      if (!alpha) continue;
      data[to] = sums[x] / alpha;
      data[to + 1] = sums[x + 1] / alpha;
      data[to + 2] = sums[x + 2] / alpha;
      data[to + 3] = 255 * alpha;
    }
  }

  // Adds a colour to all pixels between two places, to the outer ones in part.
  function cover(width, left, right, rgba) {
    const last = Math.min(width - 1, Math.floor(right));
    for (let x = Math.floor(left); x <= last; x++) {
      const part = ((right < x + 1 ? right : x + 1) - (left > x ? left : x)) * rgba[3];
      if (part <= 0) continue;
      sums[4 * x] += rgba[0] * part;
      sums[4 * x + 1] += rgba[1] * part;
      sums[4 * x + 2] += rgba[2] * part;
      sums[4 * x + 3] += part;
    }
  }

  // Edge, pattern and number of a box that is wide enough.
  function dress(context, scene, view, strip, at) {
    const op = strip.ops[at], style = scene.styles[strip.style[at]], [top, bottom] = extent(view, strip);
    const left = pipesim.toX(view, strip.start[at]), right = pipesim.toX(view, strip.end[at]);
    const pattern = right - left >= WIDE && patternOf(context, style.pattern);
    if (pattern) {
      context.fillStyle = pattern;
      context.fillRect(left, top, right - left, bottom - top);
    }
    context.fillStyle = "rgba(255,255,255,0.6)";
    context.fillRect(left - 0.25, top, 0.5, bottom - top);
    if (scene.columns.kind[op] > LAST_COMPUTE) return;
    const from = Math.max(left, view.left), to = Math.min(right, view.left + view.width);
    const [text, size] = label(context, scene, op, to - from - 3, bottom - top);
    if (!text) return;
    context.font = fontOf(scene, size);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = dark(style.rgba) ? "#ffffff" : "#14202c";
    context.fillText(text, (from + to) / 2, (top + bottom) / 2 + 0.5);
  }

  const fontOf = (scene, size) => `${size}px ${scene.palette.font}`;

  // The longest text that fits, and its size: the whole action, its microbatch, the microbatch in small.
  function label(context, scene, op, room, height) {
    const { columns, panel } = scene;
    const short = columns.microbatch[op] + (panel.slices > 1 ? "." + columns.slice[op] : "");
    const long = pipesim.text(scene, op), digits = String(panel.microbatches - 1).length - String(columns.microbatch[op]).length;
    for (const [size, text, spare] of [[12, long, 24], [11, short, 0], [9, short, 0]]) {
      if (size > height - 1) continue;
      if ((text.length + digits) * size * 0.6 + spare <= room) return [text, size]; // all of a kind, or none
    }
    return ["", 0];
  }

  function dark([red, green, blue]) {
    const linear = [red, green, blue].map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : Math.pow((share + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.32;
  }

  const patterns = new Map();
  function patternOf(context, shape) {
    if (!shape) return null;
    if (!patterns.has(shape)) {
      const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
      const pen = tile.getContext("2d");
      pen.strokeStyle = "rgba(255,255,255,0.42)";
      pen.fillStyle = "rgba(255,255,255,0.28)";
      pen.lineWidth = 1;
      pen.beginPath();
      const strokes = { "/": [[-1, 1, 1, -1], [0, 6, 6, 0], [5, 7, 7, 5]], "\\": [[-1, 5, 1, 7], [0, 0, 6, 6], [5, -1, 7, 1]] };
      strokes.x = [...strokes["/"], ...strokes["\\"]];
      for (const [x0, y0, x1, y1] of strokes[shape] || []) {
        pen.moveTo(x0, y0);
        pen.lineTo(x1, y1);
      }
      pen.stroke();
      if (shape === ".") pen.fillRect(2, 2, 2, 2);
      patterns.set(shape, context.createPattern(tile, "repeat"));
    }
    return patterns.get(shape);
  }
})((window.pipesim = window.pipesim || {}));
