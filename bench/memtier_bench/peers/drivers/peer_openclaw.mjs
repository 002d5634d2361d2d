// OpenClaw's own memory search (memory-core): what was said stands in its daily notes, and the
// search that its tool `memory_search` calls is asked.  By JSON lines, as loop.py describes.
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const answer = (document) => fs.writeSync(1, JSON.stringify(document) + "\n");
const top = process.argv[2]; // where npm installed it
const sdk = path.join(top, "node_modules/openclaw/dist/plugin-sdk/memory-host-search.js");
const { getActiveMemorySearchManager } = await import(pathToFileURL(sdk));

console.log = console.info = console.debug = console.error; // standard output is for answers

let stores = 0;
let store = null;

class Store {
  constructor(folder) {
    this.agent = `agent${++stores}`; // a workspace and an index of its own
    this.notes = path.join(folder, "memory");
    fs.mkdirSync(this.notes, { recursive: true });
    const remote = { baseUrl: process.env.EMBEDDINGS_URL, apiKey: "none" };
    this.config = {
      agents: { entries: { [this.agent]: { workspace: folder } } },
      memory: { search: { provider: "openai-compatible", model: "minilm", remote } },
    };
  }

  add(session) {
    const file = path.join(this.notes, `${(session.at ?? "2026-01-01").slice(0, 10)}.md`);
    fs.appendFileSync(file, session.turns.map((turn) => `- ${turn.text}\n`).join(""));
    this.stale = true;
  }

  async index() {
    if (!this.manager) {
      const search = await getActiveMemorySearchManager({ cfg: this.config, agentId: this.agent });
      if (!search.manager) throw new Error(search.error ?? "there is no search manager");
      this.manager = search.manager;
    }
    if (this.stale) await this.manager.sync({ reason: "bench", force: true });
    this.stale = false;
  }

  async ask(request) {
    const most = request.k ? { maxResults: request.k } : {};
    const hits = await this.manager.search(request.prompt, most);
    return hits.map((hit) => hit.snippet.trim());
  }

  async size() {
    await this.index();
    const state = path.join(process.env.HOME, ".openclaw", "agents", this.agent);
    return [path.dirname(this.notes), state].reduce((sum, folder) => sum + measure(folder), 0);
  }
}

function measure(folder) {
  if (!fs.existsSync(folder)) return 0;
  const files = fs.readdirSync(folder, { recursive: true, withFileTypes: true });
  return files
    .filter((file) => file.isFile())
    .reduce((sum, file) => sum + fs.statSync(path.join(file.parentPath, file.name)).size, 0);
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  try {
    let lines = [];
    let bytes = 0;
    if (request.do === "open") store = new Store(request.folder);
    else if (request.do === "add") store.add(request.session);
    else if (request.do === "size") bytes = await store.size();
    else await store.index(); // its time is not the search's
    const started = performance.now();
    if (request.do === "ask") lines = await store.ask(request);
    answer({ lines, bytes, ms: performance.now() - started });
  } catch (error) {
    console.error(error);
    answer({ error: String(error) });
  }
}
process.exit(0);
