// In the playground: paint over the chart that Dash draws, and follow the theme that was chosen.
(function (pipesim) {
  "use strict";

  function watch() {
    const playground = document.getElementById("playground");
    if (!playground || playground.dataset.watched) return;
    playground.dataset.watched = "yes";
    new MutationObserver(look).observe(playground, { childList: true, subtree: true });
    look();
  }

  function look() {
    const graph = document.querySelector("#playground .js-plotly-plot");
    if (graph && graph._fullLayout && !graph.pipesim && graph.layout.meta) attach(graph);
    const chosen = document.querySelector("#theme input:checked");
    if (chosen) document.documentElement.dataset.theme = chosen.value || chosen.closest("label").textContent.trim();
  }

  async function attach(graph) {
    await pipesim.attach(graph);
    graph.dataset.ready = "yes";
    graph.on("plotly_afterplot", () => {
      document.documentElement.dataset.theme = graph.layout.meta.pipesim.theme;
    });
  }

  new MutationObserver(watch).observe(document.documentElement, { childList: true, subtree: true });
})((window.pipesim = window.pipesim || {}));
