// How long the shim takes from hook entry to return, and what of it is the pipe's own.
//
//   node timing.mjs '{"command": [...], "home": "...", "project": "..."}' [TIMES]
//
// It loads the plugin as the host does, with an `api` that keeps the handlers, and prints JSON.

import { performance } from "node:perf_hooks";
import plugin from "../../hooks/openclaw/index.js";

const pluginConfig = JSON.parse(process.argv[2]);
const times = Number(process.argv[3] ?? 200);
const handlers = {};
plugin.register({
  pluginConfig,
  logger: { warn: (text) => process.stderr.write(`${text}\n`), debug: () => {} },
  on: (name, handler) => (handlers[name] = handler),
  registerTool: () => {},
});
const bridge = [...globalThis[Symbol.for("memtier.bridges")].values()][0];

async function measured(work) {
  const started = performance.now();
  const found = await work();
  return [performance.now() - started, found];
}

function recall(number) {
  const things = ["bag", "hat", "key", "map", "coat", "book"]; // as test_shim.py numbers them
  const thing = things[(Math.floor(number / 10) + (number % 10)) % things.length];
  const event = { prompt: `Where is my ${thing} number ${number}?`, messages: [] };
  const context = { agentId: "main", sessionKey: "agent:main:main", runId: `run-${number}`, trigger: "user" };
  return handlers.before_prompt_build(event, context);
}

const percentile = (sorted, part) => Number(sorted[Math.floor(part * (sorted.length - 1))].toFixed(1));
const spread = (all) => {
  const sorted = [...all].sort((a, b) => a - b);
  return { p50: percentile(sorted, 0.5), p95: percentile(sorted, 0.95), most: percentile(sorted, 1) };
};

const [cold, first] = await measured(() => recall(0));
for (let number = 1; number <= 5; number++) await recall(number);
const recalls = [];
const pings = [];
let answered = 0;
for (let number = 0; number < times; number++) {
  const [ms, found] = await measured(() => recall(number + 10));
  recalls.push(ms);
  answered += Boolean(found?.prependContext);
  pings.push((await measured(() => bridge.call("ping", {}, 5000)))[0]);
}
console.log(JSON.stringify({
  cold_ms: Math.round(cold), cold_answered: Boolean(first?.prependContext), recalls: times, answered,
  recall_ms: spread(recalls), pipe_ms: spread(pings),
}));
bridge.close();
