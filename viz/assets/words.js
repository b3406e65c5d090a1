// Texts: an operation as in schedule files, times with units, what a box says when pointed at.
(function (pipesim) {
  "use strict";
  const LETTERS = "FBIWXL", FLOWS = { 1: "F", 2: "B", 3: "T", 4: "X" };
  const SEND = 6, RECV = 7, REDUCE = 8;

  pipesim.text = function (scene, op) {
    const { kind, stage, microbatch, slice, flow } = scene.columns;
    const tail = slice[op] ? "." + slice[op] : "";
    if (kind[op] < LETTERS.length) return `${stage[op]}${LETTERS[kind[op]]}${microbatch[op]}${tail}`;
    if (kind[op] === SEND || kind[op] === RECV) {
      return `${stage[op]}${kind[op] === SEND ? "SEND" : "RECV"}_${FLOWS[flow[op]] || ""}${microbatch[op]}${tail}`;
    }
    return kind[op] === REDUCE ? `${stage[op]}REDUCE_GRAD` : "STEP";
  };

  pipesim.seconds = function (value) {
    const size = Math.abs(value);
    if (value === 0) return "0 s";
    for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
      if (size >= scale * 0.99995) return `${Number((value / scale).toPrecision(4))} ${unit}`;
    }
    return `${Number((value / 1e-9).toPrecision(4))} ns`;
  };

  // Start, end and how long: with as many digits as tell the two apart.
  function times(start, end) {
    const long = end - start;
    const [unit, scale] = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]].find(([, one]) => end >= one) || ["ns", 1e-9];
    const digits = long > 0 ? Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(long / scale)))) : 3;
    const at = (value) => String(Number((value / scale).toFixed(digits)));
    return `${at(start)} → ${at(end)} ${unit}, ${pipesim.seconds(long)}`;
  }

  // Lines of what to show of a box or an idle span; the first is its name.
  pipesim.lines = function (scene, strip, at) {
    const { columns, palette, panel } = scene, op = strip.ops[at], when = times(strip.start[at], strip.end[at]);
    if (strip.group === "idle") return [`idle: ${palette.causes[columns.idle_cause[op]].name}`, `rank ${strip.rank}`, when];
    const kind = columns.kind[op];
    let word = palette.kinds[kind].name;
    if (kind === SEND || kind === RECV) {
      word += ` ${palette.flows[columns.flow[op]].name} ${kind === SEND ? "to" : "from"} rank ${columns.peer[op]}`;
    }
    const place = [`rank ${strip.rank}`, `stage ${columns.stage[op]}`, `microbatch ${columns.microbatch[op]}`];
    if (panel.slices > 1) place.push(`slice ${columns.slice[op]}`);
    const lines = [`${pipesim.text(scene, op)}  ${word}`, place.join(" · "), when];
    if (panel.values && strip.group === "compute") return [...lines, ...difference(columns, op)];
    return strip.group === "compute" ? [...lines, ...waits(scene, op)] : lines;
  };

  // Against the other run.
  function difference(columns, op) {
    if (Number.isNaN(columns.late[op])) return ["only in this run"];
    const say = (value, more, less) => `${pipesim.seconds(Math.abs(value))} ${value >= 0 ? more : less}`;
    return [`starts ${say(columns.late[op], "later", "earlier")}`, `takes ${say(columns.longer[op], "longer", "less")}`];
  }

  // What the box waited for: the idle spans that end where it begins, and the need that ended last.
  function waits(scene, op) {
    const { columns, palette, idle } = scene, found = [];
    const row = idle.find((strip) => strip.rank === columns.rank[op]);
    if (!row) return found;
    let begin = columns.start[op];
    for (let i = pipesim.after(row.start, begin) - 1; i >= 0 && row.end[i] === begin; i--) {
      const cause = palette.causes[columns.idle_cause[row.ops[i]]].name;
      found.unshift(`before: ${pipesim.seconds(row.end[i] - row.start[i])} ${cause}`);
      begin = row.start[i];
    }
    let last = -1;
    for (let k = columns.firstNeed[op]; k < columns.firstNeed[op + 1]; k++) {
      if (last < 0 || columns.end[columns.need[k]] > columns.end[last]) last = columns.need[k];
    }
    if (found.length && last >= 0) found[found.length - 1] += ` (${pipesim.text(scene, last)})`;
    return found;
  }
})((window.pipesim = window.pipesim || {}));
