// One prompt through the plugin; prints what it adds to it.
//
//   node recall.mjs '{"command": [...], "home": "...", "project": "..."}' SESSION PROMPT

import plugin from "../../hooks/openclaw/index.js";

const [config, session, prompt] = process.argv.slice(2);
const handlers = {};
plugin.register({
  pluginConfig: JSON.parse(config),
  logger: { warn: (text) => console.error(text), debug: () => {} },
  on: (name, handler) => (handlers[name] = handler),
  registerTool: () => {},
});
const context = { agentId: "main", sessionKey: `agent:main:${session}`, runId: `${session}:${Date.now()}`, trigger: "user" };
const added = await handlers.before_prompt_build({ prompt, messages: [] }, context);
console.log(JSON.stringify(added?.prependContext ?? ""));
process.exit(0);
