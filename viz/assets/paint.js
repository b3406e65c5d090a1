// Paints the strips of a scene: what is narrower than a pixel is mixed, what is wide gets pattern and number.
(function (pipesim) {
  "use strict";
  const EDGED = 3, WIDE = 7, TALL = 7; // CSS pixels from which a box has an edge, and a pattern
  const LAST_COMPUTE = 3;

  // view: {left, top, width, height} of the plot in CSS pixels, its time range, its row range, pixels per pixel.
  pipesim.paint = function (context, scene, view, hidden) {
    context.save();
    context.beginPath();
    context.rect(view.left, view.top, view.width, view.height);
    context.clip();
    const wide = [];
    for (const strip of [...scene.idle, ...scene.strips]) paintStrip(context, scene, view, strip, hidden, wide);
    for (const box of wide) dress(context, scene, view, box);
    context.restore();
  };

  pipesim.toX = (view, time) => view.left + ((time - view.times[0]) / (view.times[1] - view.times[0])) * view.width;
  pipesim.toY = (view, row) => view.top + ((row - view.rows[0]) / (view.rows[1] - view.rows[0])) * view.height;

  function paintStrip(context, scene, view, strip, hidden, wide) {
    const top = pipesim.toY(view, strip.rank + strip.low), bottom = pipesim.toY(view, strip.rank + strip.high);
    if (bottom < view.top || top > view.top + view.height) return;
    const columns = Math.max(1, Math.round(view.width * view.ratio));
    const sums = cleared(columns);
    const scale = columns / (view.times[1] - view.times[0]), from = view.times[0];
    const tall = strip.group === "compute" && bottom - top >= TALL;
    for (let i = pipesim.after(strip.reach, from); i < strip.ops.length && strip.start[i] < view.times[1]; i++) {
      const name = pipesim.nameOf(scene, strip, i);
      if (hidden(name)) continue;
      const colour = pipesim.colourOf(scene, strip, i);
      const left = (strip.start[i] - from) * scale, right = (strip.end[i] - from) * scale;
      cover(sums, columns, Math.max(0, left), Math.min(columns, right), colour);
      if (tall && right - left >= EDGED * view.ratio) wide.push({ strip, at: i, top, bottom, colour });
    }
    blit(context, sums, columns, view, top, bottom - top);
  }

  let buffer = new Float32Array(0);
  function cleared(columns) {
    if (buffer.length < 4 * columns) buffer = new Float32Array(4 * columns);
    buffer.fill(0, 0, 4 * columns);
    return buffer;
  }

  // Adds a colour to all pixels between two places, to the outer ones in part.
  function cover(sums, columns, left, right, [red, green, blue, alpha]) {
    const first = Math.floor(left), last = Math.min(columns - 1, Math.floor(right));
    for (let x = first; x <= last; x++) {
      const part = (Math.min(right, x + 1) - Math.max(left, x)) * alpha;
      if (part <= 0) continue;
      sums[4 * x] += red * part;
      sums[4 * x + 1] += green * part;
      sums[4 * x + 2] += blue * part;
      sums[4 * x + 3] += part;
    }
  }

  let line = null;
  function blit(context, sums, columns, view, top, height) {
    if (!line || line.width !== columns) line = Object.assign(document.createElement("canvas"), { width: columns, height: 1 });
    const pen = line.getContext("2d"), image = pen.createImageData(columns, 1);
    for (let x = 0; x < columns; x++) {
      const alpha = sums[4 * x + 3];
      if (!alpha) continue;
      image.data[4 * x] = sums[4 * x] / alpha;
      image.data[4 * x + 1] = sums[4 * x + 1] / alpha;
      image.data[4 * x + 2] = sums[4 * x + 2] / alpha;
      image.data[4 * x + 3] = Math.min(255, 255 * alpha);
    }
    pen.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(line, 0, 0, columns, 1, view.left, top, view.width, Math.max(1 / view.ratio, height));
  }

  // Edge, pattern and number of a box that is wide enough.
  function dress(context, scene, view, { strip, at, top, bottom, colour }) {
    const op = strip.ops[at], kind = scene.columns.kind[op];
    const left = pipesim.toX(view, strip.start[at]), right = pipesim.toX(view, strip.end[at]);
    const pattern = patternOf(context, scene.palette.kinds[kind].pattern);
    if (pattern && right - left >= WIDE && !scene.panel.values) {
      context.fillStyle = pattern;
      context.fillRect(left, top, right - left, bottom - top);
    }
    context.fillStyle = "rgba(255,255,255,0.6)";
    context.fillRect(left - 0.25, top, 0.5, bottom - top);
    if (kind <= LAST_COMPUTE) label(context, scene, view, op, left, right, top, bottom, colour);
  }

  function label(context, scene, view, op, left, right, top, bottom, colour) {
    const size = Math.min(12, bottom - top - 2);
    if (size < 7) return;
    const from = Math.max(left, view.left), to = Math.min(right, view.left + view.width);
    context.font = `${size}px ${scene.palette.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const { columns, panel } = scene;
    const short = columns.microbatch[op] + (panel.slices > 1 ? "." + columns.slice[op] : "");
    const long = pipesim.text(scene, op);
    const room = to - from - 4;
    const shown = context.measureText(long).width <= room - 30 ? long : context.measureText(short).width <= room ? short : "";
    if (!shown) return;
    context.fillStyle = dark(colour) ? "#ffffff" : "#14202c";
    context.fillText(shown, (from + to) / 2, (top + bottom) / 2 + 0.5);
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
      pen.strokeStyle = pen.fillStyle = "rgba(255,255,255,0.42)";
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
