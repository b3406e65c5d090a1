// What is drawn where: strips of boxes, each strip a lane of a rank, sorted by start.
(function (pipesim) {
  "use strict";
  const SEND = 6, RECV = 7, LAST_COMPUTE = 3;

  // extent: top and bottom of the compute lane within a row; strip: those of the lanes beneath it.
  pipesim.scene = function (columns, panel, palette) {
    const scene = { columns, panel, palette, strips: [], idle: [], chunk: panel.chunk, ranks: panel.ranks };
    const rows = Array.from({ length: panel.ranks }, () => [[], [], []]); // whole, upper half, lower half
    const lanes = new Map();
    const { kind, fused, lane, start, end, rank } = columns;
    for (let op = 0; op < kind.length; op++) {
      if (panel.values && kind[op] > LAST_COMPUTE) continue; // between two runs: actions only
      if (panel.lanes[lane[op]] >= 0) {
        if (end[op] > start[op]) push(lanes, lane[op], op);
      } else if (fused[op]) rows[rank[op]][2].push(op);
      else rows[rank[op]][op + 1 < kind.length && fused[op + 1] ? 1 : 0].push(op);
    }
    const [low, high] = panel.extent, middle = (low + high) / 2;
    const extents = [[low, high], [low, middle], [middle, high]];
    rows.forEach((parts, r) => parts.forEach((ops, part) => {
      if (ops.length) scene.strips.push(strip(columns, r, ops, ...extents[part], "compute"));
    }));
    const thick = (panel.strip[1] - panel.strip[0]) / Math.max(3, panel.mostLanes);
    for (const [which, ops] of lanes) {
      const top = panel.strip[0] + panel.lanes[which] * thick;
      scene.strips.push(strip(columns, rank[ops[0]], ops, top, top + 0.85 * thick, "transfers"));
    }
    scene.idle = panel.values ? [] : idleStrips(columns, panel);
    pipesim.restyle(scene, "chunk");
    return scene;
  };

  function push(map, key, value) {
    if (map.has(key)) map.get(key).push(value);
    else map.set(key, [value]);
  }

  function strip(columns, rank, ops, low, high, group) {
    const sorted = Int32Array.from(ops).sort((a, b) => columns.start[a] - columns.start[b] || a - b);
    const start = Float64Array.from(sorted, (op) => columns.start[op]);
    const end = Float64Array.from(sorted, (op) => columns.end[op]);
    return { rank, ops: sorted, start, end, reach: reach(end), low, high, group };
  }

  function idleStrips(columns, panel) {
    const rows = Array.from({ length: panel.ranks }, () => []);
    columns.idle_rank.forEach((rank, i) => rows[rank].push(i));
    return rows.flatMap((spans, rank) => spans.length ? [{
      rank, ops: Int32Array.from(spans), low: panel.extent[0], high: panel.extent[1], group: "idle",
      start: Float64Array.from(spans, (i) => columns.idle_start[i]),
      end: Float64Array.from(spans, (i) => columns.idle_end[i]),
      reach: reach(Float64Array.from(spans, (i) => columns.idle_end[i])),
    }] : []);
  }

  // Latest end so far, so that a binary search works although transfers of one lane may overlap.
  function reach(end) {
    const most = Float64Array.from(end);
    for (let i = 1; i < most.length; i++) if (most[i] < most[i - 1]) most[i] = most[i - 1];
    return most;
  }

  // First place where values[place] > limit.
  pipesim.after = function (values, limit) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > limit) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  // The strip and place of what is at a time (s) and a row (rank + offset): a box rather than an idle span.
  pipesim.find = function (scene, time, row, slack, hidden) {
    const rank = Math.round(row), offset = row - rank;
    for (const strip of [...scene.strips, ...scene.idle]) {
      if (strip.rank !== rank || offset < strip.low || offset > strip.high) continue;
      let best = -1;
      for (let i = pipesim.after(strip.reach, time - slack); i < strip.ops.length && strip.start[i] <= time + slack; i++) {
        if (hidden(scene.styles[strip.style[i]].name)) continue;
        if (strip.start[i] <= time && time < strip.end[i]) return { strip, at: i };
        if (best < 0 && strip.group !== "idle") best = i;
      }
      if (best >= 0) return { strip, at: best };
    }
    return null;
  };

  // Everything looks like one of a few styles {name, rgba, pattern}; a box knows only the number of its style.
  pipesim.restyle = function (scene, shade) {
    const { palette, columns, panel } = scene;
    const styles = palette.causes.map((cause) => ({ name: cause.name, rgba: cause.rgba, pattern: "" }));
    const place = new Map();
    const add = (key, style) => place.set(key, styles.push(style) - 1);
    for (const [flow, { name, rgba }] of Object.entries(palette.flows)) add(`flow${flow}`, { name, rgba, pattern: "" });
    for (const [kind, { name, shades, pattern }] of Object.entries(palette.kinds)) {
      shades.forEach((rgba, at) => add(`${kind}.${at}`, { name, rgba, pattern: panel.values ? "" : pattern }));
    }
    const levels = panel.values ? panel.values.colours.map((rgb) => [...rgb, 1]) : [];
    for (const [kind, { name }] of Object.entries(palette.kinds)) {
      levels.forEach((rgba, at) => add(`${kind}.level${at}`, { name, rgba, pattern: "" }));
    }
    scene.shade = shade;
    scene.styles = styles;
    for (const strip of scene.idle) strip.style = Uint16Array.from(strip.ops, (span) => columns.idle_cause[span]);
    for (const strip of scene.strips) {
      strip.style = Uint16Array.from(strip.ops, (op) => {
        const kind = columns.kind[op];
        if (kind === SEND || kind === RECV) return place.get(`flow${columns.flow[op]}`);
        if (panel.values && kind <= LAST_COMPUTE) return place.get(`${kind}.level${levelOf(columns.late[op], panel.values)}`);
        return place.get(`${kind}.${kind > LAST_COMPUTE ? 0 : shadeOf(scene, op, palette.kinds[kind].shades.length)}`);
      });
    }
  };

  // From early to late; the middle where nothing is known.
  function levelOf(late, { scale, colours }) {
    const middle = (colours.length - 1) / 2;
    const share = Number.isNaN(late) ? 0 : Math.max(-1, Math.min(1, late / scale));
    return Math.round(middle * (1 + share));
  }

  // 0 is the full colour. Chunks are as far apart as they can be.
  function shadeOf(scene, op, steps) {
    const { columns, panel, shade } = scene;
    const share = shade === "microbatch"
      ? columns.microbatch[op] / Math.max(1, panel.microbatches - 1)
      : (panel.chunk[columns.stage[op]] / Math.max(1, panel.chunks - 1)) * panel.lightest;
    return Math.round(share * (steps - 1));
  }
})((window.pipesim = window.pipesim || {}));
