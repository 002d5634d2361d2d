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

  // The review by keys: each presses the button that names it in aria-keyshortcuts, on the item with
  // the focus or else the first one. In a text keys are letters.
  let decided = null;
  const waiting = () => [...document.querySelectorAll("[data-waits]")];
  function pressed(event) {
    const [items, item] = [waiting(), event.target.closest("[data-waits]")];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape" && item) item.focus();
      return;
    }
    const next = { j: 1, k: -1 }[event.key];
    const take = (decided ?? document.querySelector(".decided"))?.querySelector('[aria-keyshortcuts="u"]');
    const button = (item ?? items[0])?.querySelector(`[aria-keyshortcuts="${CSS.escape(event.key)}"]`);
    if (next && items.length) items[Math.min(Math.max(items.indexOf(item) + next, 0), items.length - 1)].focus();
    else if (event.key === "u" && take) take.focus();
    else if (button && !event.repeat && !(item ?? items[0]).querySelector(".htmx-request")) button.click();
    else return;
    event.preventDefault();
    if (event.key === "e") button.closest("details").querySelector("textarea").focus();
  }
  function review() {
    const keys = document.querySelector(".keys");
    if (!keys) return;
    keys.hidden = false;
    document.addEventListener("keydown", pressed);
  }
  // After a decision the focus goes to the next item that waits, or to what was done.
  function followDecision({ elt, requestConfig }) {
    if (requestConfig?.verb !== "post" || !elt.matches(".item, .notice")) return;
    if (!elt.matches(".decided")) return elt.focus();
    decided = elt;
    const after = waiting().find((item) => elt.compareDocumentPosition(item) & Node.DOCUMENT_POSITION_FOLLOWING);
    (after ?? waiting()[0] ?? elt).focus();
  }

  document.addEventListener("DOMContentLoaded", () => { drawAll(document); follow(); review(); });
  document.addEventListener("htmx:afterSettle", (event) => { drawAll(event.detail.elt); followDecision(event.detail); });
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
