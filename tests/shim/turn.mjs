// One run of so many messages through the plugin, delivered twice; with "stop", after a stop.
//
//   node turn.mjs '{"command": [...], "home": "...", "project": "..."}' MESSAGES [stop]

import plugin from "../../hooks/openclaw/index.js";

const handlers = {};
const warnings = [];
const services = [];
plugin.register({
  pluginConfig: JSON.parse(process.argv[2]),
  logger: { warn: (text) => warnings.push(text), debug: () => {} },
  on: (name, handler) => (handlers[name] = handler),
  registerTool: () => {},
  registerService: (service) => services.push(service),
});
const messages = [{ role: "user", content: "Go on.", timestamp: Date.now() }];
while (messages.length < Number(process.argv[3])) {
  const number = messages.length;
  messages.push(
    number % 2
      ? { role: "assistant", content: [{ type: "text", text: `Step ${number}.` }, { type: "toolCall", id: `c${number}`, name: "exec", arguments: { n: number } }] }
      : { role: "toolResult", toolCallId: `c${number - 1}`, toolName: "exec", content: `done ${number}`, details: { exitCode: 0 }, isError: false },
  );
}
if (process.argv[4] === "stop") for (const service of services) await service.stop();
const context = { agentId: "main", sessionKey: "agent:main:main", runId: "long", trigger: "user" };
const started = performance.now();
for (let time = 0; time < 2; time++) await handlers.agent_end({ messages, success: true }, context);
console.log(JSON.stringify({ ms: Math.round(performance.now() - started), warnings }));
for (const service of services) await service.stop();
