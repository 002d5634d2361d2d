// Live pages and plots; everything else is HTML. Written without eval and inline code for the CSP.
"use strict";

(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // data-plot holds [[seconds ...], [weight ...]].
  function draw(element) {
    const data = JSON.parse(element.dataset.plot);
    element.replaceChildren();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const iso = (at) => new Date(at * 1000).toISOString();
    const times = (_, moments) => moments.map((at) => (at % 86400 ? iso(at).slice(11, 16) : iso(at).slice(5, 10)));
    const steps = uPlot.paths.stepped({ align: 1 });
    new uPlot({
      width: element.clientWidth, height: 220, legend: { show: true }, cursor: { y: false },
      axes: [{ ...axis, values: times }, { ...axis, size: 56 }],
      series: [
        { value: (_, at) => (at == null ? "–" : iso(at).slice(0, 16).replace("T", " ")), label: "time (UTC)" },
        { label: element.dataset.label, stroke: colour("--accent"), width: 2, paths: steps, points: { size: 6, fill: colour("--paper") }, value: (_, v) => (v == null ? "–" : v.toFixed(3)) },
      ],
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    }, data, element);
  }
  const drawAll = (root) => root.querySelectorAll("[data-plot]").forEach((plot) => plot.clientWidth && draw(plot));

  // What an open page shows is asked for again when something was written. Browsers give a site six
  // connections, so that one tab listens and tells the others; when it is closed another takes over.
  function follow() {
    const sign = document.querySelector(".live");
    if (!sign || !navigator.locks) return;
    const others = new BroadcastChannel("memtier-live");
    let state = "";
    const show = (news) => {
      if (news === "changed") document.body.dispatchEvent(new CustomEvent("changed"));
      else [sign.hidden, sign.textContent] = [false, news];
    };
    const tell = (news) => {
      if (news !== "changed") state = news;
      others.postMessage(news);
      show(news);
    };
    others.onmessage = ({ data }) => {
      if (data !== "hello") show(data);
      else if (state) others.postMessage(state);
    };
    others.postMessage("hello");
    navigator.locks.request("memtier-live", () => new Promise(() => {
      const events = new EventSource("/live");
      events.addEventListener("changed", () => tell("changed"));
      events.onopen = () => {
        tell("● live");
        if (performance.now() > 2000) tell("changed"); // perhaps, while nobody listened
      };
      events.onerror = () => tell("○ not connected");
      addEventListener("pagehide", () => events.close());
    }));
  }

  document.addEventListener("DOMContentLoaded", () => { drawAll(document); follow(); });
  document.addEventListener("htmx:afterSettle", (event) => drawAll(event.detail.elt));
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status < 400) return;
    event.detail.shouldSwap = true; // an error is shown where it happened
    event.detail.selectOverride = ".notice";
  });
  addEventListener("hashchange", () => drawAll(document));
  let width = innerWidth;
  addEventListener("resize", () => { if (width !== innerWidth) { width = innerWidth; drawAll(document); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document));
})();
