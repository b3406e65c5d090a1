// A canvas over a plotly figure: boxes of long timelines, arrows of the selected action, what is under the pointer.
(function (pipesim) {
  "use strict";

  // Attach to a plotly graph whose layout.meta.pipesim holds packed timelines. Attaching twice does no harm.
  pipesim.attach = async function (graph) {
    const about = graph.layout.meta && graph.layout.meta.pipesim;
    if (!about) return null;
    const old = graph.pipesim;
    const overlay = { graph, about, theme: about.theme, shade: old ? old.shade : "chunk", selected: null };
    graph.pipesim = overlay;
    overlay.ranges = ranges(graph);
    overlay.scenes = await Promise.all(about.panels.map(async (panel) => {
      const columns = await pipesim.decode(panel.timeline);
      for (const name of ["late", "longer"]) {
        if (panel.values) columns[name] = await pipesim.decodeFloats(panel.values[name]);
      }
      return pipesim.scene(columns, panel, about.palette);
    }));
    if (graph.pipesim !== overlay) return null; // a newer figure has come meanwhile
    overlay.redraw = throttled(() => redraw(overlay));
    overlay.setShade = (shade) => setShade(overlay, shade);
    if (!graph.pipesimListens) listen(graph);
    redraw(overlay);
    if (overlay.shade !== "chunk") setShade(overlay, overlay.shade);
    graph.dispatchEvent(new CustomEvent("pipesim-ready"));
    return overlay;
  };

  // The axes as they are first shown: what "whole step" goes back to.
  function ranges(graph) {
    const axes = Object.entries(graph._fullLayout).filter(([key]) => /^[xy]axis\d*$/.test(key));
    return Object.fromEntries(axes.map(([key, axis]) => [`${key}.range`, axis.range.slice()]));
  }

  function listen(graph) {
    graph.pipesimListens = true;
    const again = () => {
      const about = graph.layout.meta && graph.layout.meta.pipesim;
      if (about && about !== graph.pipesim.about) pipesim.attach(graph); // another figure in the same place
      else if (graph.pipesim.redraw) graph.pipesim.redraw();
    };
    for (const event of ["plotly_afterplot", "plotly_relayouting", "plotly_relayout", "plotly_restyle"]) graph.on(event, again);
    graph.addEventListener("mousemove", (event) => point(graph.pipesim, event));
    graph.addEventListener("mouseleave", () => pipesim.hideTip(graph));
    let down = null;
    graph.addEventListener("mousedown", (event) => (down = [event.clientX, event.clientY]), true);
    graph.addEventListener("click", (event) => {
      if (down && Math.hypot(event.clientX - down[0], event.clientY - down[1]) < 4) select(graph.pipesim, event);
    }, true);
    graph.ownerDocument.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && graph.pipesim.selected) choose(graph.pipesim, null);
    });
  }

  function throttled(action) {
    let due = false;
    return () => {
      if (due) return;
      due = true;
      requestAnimationFrame(() => {
        due = false;
        action();
      });
    };
  }

  function canvasOf(graph) {
    const holder = graph.querySelector(".svg-container");
    let canvas = holder.querySelector("canvas.pipesim");
    if (!canvas) {
      canvas = graph.ownerDocument.createElement("canvas");
      canvas.className = "pipesim";
      canvas.style.cssText = "position:absolute;left:0;top:0;pointer-events:none";
      holder.insertBefore(canvas, holder.querySelector(".main-svg").nextSibling);
    }
    const ratio = window.devicePixelRatio || 1, size = graph._fullLayout;
    const width = Math.round(size.width * ratio), height = Math.round(size.height * ratio);
    if (canvas.width !== width || canvas.height !== height) {
      Object.assign(canvas, { width, height });
      Object.assign(canvas.style, { width: `${size.width}px`, height: `${size.height}px` });
    }
    return canvas;
  }

  pipesim.viewOf = function (graph, panel) {
    const layout = graph._fullLayout, key = (axis) => axis[0] + "axis" + axis.slice(1);
    const x = layout[key(panel.axes[0])], y = layout[key(panel.axes[1])];
    return {
      left: x._offset, top: y._offset, width: x._length, height: y._length, ratio: window.devicePixelRatio || 1,
      times: x.range.map(Number), rows: [Number(y.range[1]), Number(y.range[0])],
    };
  };

  // Legend entries that are switched off.
  function hiddenNames(graph) {
    const names = new Set();
    for (const trace of graph._fullData) if (trace.visible !== true) names.add(trace.name);
    return (name) => names.has(name);
  }

  function redraw(overlay) {
    const { graph, about } = overlay;
    if (!overlay.scenes || !graph._fullLayout || !graph.querySelector(".main-svg")) return;
    const started = performance.now();
    const canvas = canvasOf(graph), context = canvas.getContext("2d"), hidden = hiddenNames(graph);
    const colours = about.themes[overlay.theme];
    context.setTransform(window.devicePixelRatio || 1, 0, 0, window.devicePixelRatio || 1, 0, 0);
    context.clearRect(0, 0, graph._fullLayout.width, graph._fullLayout.height);
    overlay.scenes.forEach((scene, at) => {
      const view = pipesim.viewOf(graph, scene.panel);
      if (about.painted) {
        pipesim.paint(context, scene, view, hidden);
        if (!hidden("critical path") && !scene.panel.values) pipesim.paintCritical(context, scene, view, colours.critical);
      }
      if (overlay.selected && overlay.selected.panel === at) {
        pipesim.paintArrows(context, scene, view, overlay.selected.op, colours.ink, colours.paper);
      }
    });
    overlay.frame = performance.now() - started;
    overlay.frames = (overlay.frames || 0) + 1;
  }

  // What is under a mouse event: {panel, strip, at}, or null.
  pipesim.under = function (overlay, event) {
    const box = overlay.graph.querySelector(".svg-container").getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top, hidden = hiddenNames(overlay.graph);
    for (const [panel, scene] of overlay.scenes.entries()) {
      const view = pipesim.viewOf(overlay.graph, scene.panel);
      if (x < view.left || x > view.left + view.width || y < view.top || y > view.top + view.height) continue;
      const perPixel = (view.times[1] - view.times[0]) / view.width;
      const time = view.times[0] + (x - view.left) * perPixel;
      const row = view.rows[0] + ((y - view.top) / view.height) * (view.rows[1] - view.rows[0]);
      const found = pipesim.find(scene, time, row, 2 * perPixel, hidden);
      return found && { panel, ...found };
    }
    return null;
  };

  function point(overlay, event) {
    if (!overlay.scenes || !overlay.about.painted) return;
    const found = event.buttons ? null : pipesim.under(overlay, event);
    if (!found) return pipesim.hideTip(overlay.graph);
    pipesim.showTip(overlay.graph, event, pipesim.lines(overlay.scenes[found.panel], found.strip, found.at));
  }

  function select(overlay, event) {
    if (!overlay.scenes) return;
    const found = pipesim.under(overlay, event);
    const action = found && found.strip.group === "compute";
    choose(overlay, action ? { panel: found.panel, op: found.strip.ops[found.at] } : null);
  }

  function choose(overlay, selected) {
    overlay.selected = selected;
    overlay.redraw();
  }

  function setShade(overlay, shade) {
    overlay.shade = shade;
    overlay.scenes.forEach((scene) => pipesim.restyle(scene, shade));
    if (!overlay.about.painted) restyle(overlay);
    overlay.redraw();
  }

  // Boxes that plotly draws: one list of colours a trace.
  function restyle(overlay) {
    const { graph } = overlay, colours = [], places = [];
    const look = overlay.scenes.map((scene) => {
      const styles = new Map();
      for (const strip of scene.strips) strip.ops.forEach((op, i) => styles.set(op, scene.styles[strip.style[i]]));
      return styles;
    });
    graph.data.forEach((trace, at) => {
      if (trace.type !== "bar" || trace.meta !== "compute") return;
      const which = overlay.scenes.findIndex((scene) => scene.panel.axes[1] === (trace.yaxis || "y"));
      colours.push(Array.from(graph._fullData[at].customdata, (op) => {
        const [red, green, blue] = look[which].get(op).rgba;
        return `rgb(${red},${green},${blue})`;
      }));
      places.push(at);
    });
    if (places.length) window.Plotly.restyle(graph, { "marker.color": colours }, places);
  }
})((window.pipesim = window.pipesim || {}));
