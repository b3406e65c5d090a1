// The page around the charts: theme, shades, saving as a picture.
(function (pipesim) {
  "use strict";
  const root = document.documentElement;

  pipesim.show = async function (id, figure, config) {
    await pipesim.library;
    const graph = document.getElementById(id);
    await window.Plotly.newPlot(graph, figure.data, figure.layout, config);
    await pipesim.attach(graph);
    if (theme() !== (graph.pipesim ? graph.pipesim.theme : "light")) paintTheme(graph, theme());
    graph.dataset.ready = "yes";
  };

  // plotly.js from its packed form, for pages that carry it so.
  pipesim.load = async function (text) {
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(await pipesim.inflate(text));
    document.head.appendChild(script);
  };

  function theme() {
    return root.dataset.theme || "light";
  }

  pipesim.setTheme = function (name) {
    wear(name);
    try {
      localStorage.setItem("pipesim-theme", name);
    } catch (error) { /* a page without storage keeps its theme while it is open */ }
  };

  function wear(name) {
    root.dataset.theme = name;
    for (const graph of document.querySelectorAll(".js-plotly-plot")) paintTheme(graph, name);
  }

  function paintTheme(graph, name) {
    const about = graph.layout.meta && graph.layout.meta.pipesim;
    if (!about) return;
    const colours = about.themes[name];
    const update = { paper_bgcolor: colours.paper, plot_bgcolor: colours.panel, "font.color": colours.ink };
    for (const key of Object.keys(graph.layout)) {
      if (!/^[xy]axis\d*$/.test(key)) continue;
      update[`${key}.gridcolor`] = colours.grid;
      update[`${key}.tickfont.color`] = colours.faint;
    }
    if (graph.pipesim) graph.pipesim.theme = name;
    window.Plotly.update(graph, {}, update);
    graph.data.forEach((trace, at) => {
      const colour = trace.meta === "critical" ? colours.critical : trace.meta === "limit" ? colours.limit : null;
      if (colour) window.Plotly.restyle(graph, { "line.color": colour }, [at]);
    });
  }

  pipesim.setShade = function (shade) {
    for (const graph of document.querySelectorAll(".js-plotly-plot")) if (graph.pipesim) graph.pipesim.setShade(shade);
    press("shade", shade);
  };

  function press(what, value) {
    for (const button of document.querySelectorAll(`[data-set="${what}"]`)) {
      button.setAttribute("aria-pressed", String(button.value === value));
    }
  }

  // A picture of a graph with what is painted over it.
  pipesim.picture = async function (graph, ratio) {
    const { width, height } = graph._fullLayout;
    const whole = Object.assign(document.createElement("canvas"), { width: width * ratio, height: height * ratio });
    const context = whole.getContext("2d"), canvas = graph.querySelector("canvas.pipesim");
    const image = new Image();
    image.src = await window.Plotly.toImage(graph, { format: "png", width, height, scale: ratio });
    await image.decode();
    context.drawImage(image, 0, 0, whole.width, whole.height);
    if (canvas) context.drawImage(canvas, 0, 0, whole.width, whole.height);
    return whole.toDataURL("image/png");
  };

  async function save(graph) {
    const link = Object.assign(document.createElement("a"), { download: `${document.title || "pipesim"}.png` });
    link.href = await pipesim.picture(graph, 2);
    link.click();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-set], button[data-do]");
    if (!button) return;
    if (button.dataset.set === "theme") pipesim.setTheme(theme() === "dark" ? "light" : "dark");
    if (button.dataset.set === "shade") pipesim.setShade(button.value);
    const graph = document.querySelector(".js-plotly-plot");
    if (button.dataset.do === "save" && graph) save(graph);
    if (button.dataset.do === "whole" && graph) window.Plotly.relayout(graph, structuredClone(graph.pipesim.ranges));
  });

  // On paper light, then again as it was.
  let before = "light";
  window.addEventListener("beforeprint", () => {
    before = theme();
    wear("light");
  });
  window.addEventListener("afterprint", () => wear(before));

  let kept = null;
  try {
    kept = localStorage.getItem("pipesim-theme");
  } catch (error) { /* no storage */ }
  root.dataset.theme = kept || (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
})((window.pipesim = window.pipesim || {}));
