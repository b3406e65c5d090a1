// The small window beside the pointer. Text only, so that no name can be markup.
(function (pipesim) {
  "use strict";

  pipesim.showTip = function (graph, event, lines) {
    const tip = graph.pipesimTip || (graph.pipesimTip = made(graph));
    tip.replaceChildren(...lines.map((line, at) => {
      const row = document.createElement("div");
      row.textContent = line;
      if (at === 0) row.style.fontWeight = "600";
      return row;
    }));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const right = event.clientX + 16 + width > window.innerWidth ? event.clientX - 12 - width : event.clientX + 16;
    const below = event.clientY + 16 + height > window.innerHeight ? event.clientY - 12 - height : event.clientY + 16;
    Object.assign(tip.style, { left: `${Math.max(4, right)}px`, top: `${Math.max(4, below)}px` });
  };

  pipesim.hideTip = function (graph) {
    if (graph.pipesimTip) graph.pipesimTip.hidden = true;
  };

  function made(graph) {
    const tip = document.createElement("div");
    tip.className = "pipesim-tip";
    tip.style.cssText = "position:fixed;z-index:1000;pointer-events:none;max-width:420px;padding:7px 10px;" +
      "border-radius:6px;background:#17202b;color:#f2f5f8;font:12px/1.45 system-ui,sans-serif;" +
      "box-shadow:0 4px 14px rgba(0,0,0,.28);overflow-wrap:anywhere;font-variant-numeric:tabular-nums";
    graph.ownerDocument.body.appendChild(tip);
    return tip;
  }
})((window.pipesim = window.pipesim || {}));
