// What a box is tied to: arrows from the actions it needs and to those that need it.
(function (pipesim) {
  "use strict";
  const LAST_ACTION = 5, SEND = 6, RECV = 7;

  // Pairs [from, to] of actions; a message on the way counts as one arrow.
  pipesim.arrows = function (scene, op) {
    const found = [], members = pair(scene.columns, op);
    for (const one of members) {
      for (const source of sources(scene.columns, one)) found.push([source, one]);
      for (const target of targets(scene, one)) found.push([one, target]);
    }
    return found;
  };

  function pair(columns, op) {
    if (columns.fused[op]) return [op - 1, op];
    return op + 1 < columns.fused.length && columns.fused[op + 1] ? [op, op + 1] : [op];
  }

  function needs(columns, op) {
    return columns.need.subarray(columns.firstNeed[op], columns.firstNeed[op + 1]);
  }

  function sources(columns, op) {
    const found = [];
    for (const need of needs(columns, op)) {
      if (columns.kind[need] === RECV) found.push(...needs(columns, columns.match[need]));
      else if (columns.kind[need] <= LAST_ACTION) found.push(need);
    }
    return found;
  }

  function targets(scene, op) {
    const { columns } = scene, needing = scene.needing || (scene.needing = reversed(columns)), found = [];
    for (const user of needing.of(op)) {
      if (columns.kind[user] === SEND) found.push(...needing.of(columns.match[user]));
      else if (columns.kind[user] <= LAST_ACTION) found.push(user);
    }
    return found;
  }

  function reversed(columns) {
    const count = columns.kind.length, first = new Int32Array(count + 2);
    for (const need of columns.need) first[need + 2]++;
    for (let i = 1; i < first.length; i++) first[i] += first[i - 1];
    const users = new Int32Array(columns.need.length);
    for (let op = 0; op < count; op++) for (const need of needs(columns, op)) users[first[need + 1]++] = op;
    return { of: (op) => users.subarray(first[op], first[op + 1]) };
  }

  pipesim.paintArrows = function (context, scene, view, op, ink, halo) {
    context.save();
    context.beginPath();
    context.rect(view.left, view.top, view.width, view.height);
    context.clip();
    for (const [from, to] of pipesim.arrows(scene, op)) arrow(context, scene, view, from, to, ink, halo);
    for (const one of pair(scene.columns, op)) outline(context, scene, view, one, ink, halo);
    context.restore();
  };

  // From edge to edge where the ranks differ, in an arc above the row where they do not.
  function arrow(context, scene, view, from, to, ink, halo) {
    const { rank, start, end } = scene.columns, [low, high] = scene.panel.extent;
    const down = Math.sign(rank[to] - rank[from]), x0 = pipesim.toX(view, end[from]), x1 = pipesim.toX(view, start[to]);
    const y0 = pipesim.toY(view, rank[from] + (down > 0 ? high : low)), y1 = pipesim.toY(view, rank[to] + (down < 0 ? high : low));
    const bend = down ? 0.35 * (y1 - y0) : -14;
    const [c0, c1] = [y0 + bend, down ? y1 - bend : y1 + bend];
    for (const [colour, width] of [[halo, 4.5], [ink, 1.8]]) {
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0, c0, x1, c1, x1, y1);
      context.stroke();
      const back = Math.sign(c1 - y1) * 8; // the curve comes in upright
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x1 - 4, y1 + back);
      context.lineTo(x1 + 4, y1 + back);
      context.fill();
    }
  }

  function outline(context, scene, view, op, ink, halo) {
    const { start, end, rank } = scene.columns, [low, high] = scene.panel.extent;
    const left = pipesim.toX(view, start[op]), top = pipesim.toY(view, rank[op] + low);
    const width = Math.max(2, pipesim.toX(view, end[op]) - left), height = pipesim.toY(view, rank[op] + high) - top;
    for (const [colour, line] of [[halo, 4], [ink, 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(left, top, width, height);
    }
  }

  // The operations that decide the step time, as one line from box to box.
  pipesim.paintCritical = function (context, scene, view, ink) {
    const { critical, start, end, kind } = scene.columns;
    context.save();
    context.beginPath();
    context.rect(view.left, view.top, view.width, view.height);
    context.clip();
    context.beginPath();
    let drawn = false;
    for (const op of critical) {
      if (kind[op] > LAST_ACTION && kind[op] !== 9) continue;
      const y = pipesim.toY(view, scene.columns.rank[op] + scene.panel.extent[1]);
      context[drawn ? "lineTo" : "moveTo"](pipesim.toX(view, start[op]), y);
      context.lineTo(pipesim.toX(view, end[op]), y);
      drawn = true;
    }
    context.strokeStyle = ink;
    context.lineWidth = 1.5;
    context.stroke();
    context.restore();
  };
})((window.pipesim = window.pipesim || {}));
