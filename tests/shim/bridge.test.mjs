// The pipe to the resident, in JavaScript: run by tests/hooks/test_bridge.py with `node --test`.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Bridge, readOwner, socketPath } from "../../hooks/openclaw/bridge.js";

const SERVE = JSON.parse(process.env.SERVE); // how `memtier` is run
const PATIENCE = 60_000;
const LOG = { warn: () => {} };
const NOBODY = ["memtier-that-is-not-there"];

async function scene(t, { under = "" } = {}) {
  const top = await mkdtemp(join(tmpdir(), "shim-"));
  const home = join(top, under, "home");
  const bridges = [];
  const make = (command = SERVE, more = {}) => {
    bridges.push(new Bridge({ command, home, environment: ["PYTHONPATH"], log: LOG, ...more }));
    return bridges.at(-1);
  };
  t.after(async () => {
    for (const bridge of bridges) bridge.close();
    const { pid } = readOwner(socketPath(home));
    if (pid && pid !== process.pid && alive(pid)) process.kill(pid, "SIGKILL");
    if (pid && pid !== process.pid) await until(() => !alive(pid));
    await rm(top, { recursive: true, force: true, maxRetries: 5 });
  });
  return { top, home, make };
}

function turn(run, text = "My bag is in the blue locker.") {
  const messages = [
    { role: "user", content: [{ type: "text", text }], timestamp: Date.now() },
    { role: "assistant", content: [{ type: "text", text: "Noted." }], stopReason: "stop" },
  ];
  const context = { agentId: "main", sessionKey: "agent:main:main", runId: run, trigger: "user" };
  return { host: "openclaw", name: "agent_end", project: "p", event: { messages, success: true }, context };
}

async function stored(home) {
  const folder = join(home, "projects/p/episodic/openclaw.main");
  const days = await readdir(folder).catch(() => []);
  const texts = await Promise.all(days.map((day) => readFile(join(folder, day), "utf8")));
  const lines = texts.join("").split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return lines.filter((line) => line.role === "user").map((line) => line.content).sort();
}

async function queued(home) {
  return (await readdir(join(home, "queue")).catch(() => [])).filter((name) => name.endsWith(".json"));
}

async function until(holds, ms = PATIENCE) {
  const end = Date.now() + ms;
  while (!(await holds())) {
    assert.ok(Date.now() < end, "it did not come about");
    await sleep(20);
  }
}

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Stop a process; on a busy machine its other threads go on for a while after the signal. */
async function halt(process_) {
  process.kill(process_, "SIGSTOP");
  const tasks = `/proc/${process_}/task`;
  await until(async () => {
    const told = await Promise.all((await readdir(tasks)).map((task) => readFile(join(tasks, task, "stat"), "utf8")));
    return told.every((stat) => stat.slice(stat.lastIndexOf(")") + 2).startsWith("T"));
  });
}

const pid = async (bridge) => (await bridge.call("ping", {}, PATIENCE)).pid;

test("a resident is started, stores the run, and stays when the host lets go", async (t) => {
  const { home, make } = await scene(t);
  const [first, second] = [make(), make()];
  await first.deliver(turn("r1"), PATIENCE);
  const started = await pid(first);
  first.close();
  assert.equal(await pid(second), started);
  assert.deepEqual(await stored(home), ["My bag is in the blue locker."]);
  assert.deepEqual(await queued(home), []);
});

test("bridges that start at the same moment get the same resident", async (t) => {
  const { make } = await scene(t);
  const pids = await Promise.all([...Array(4).keys()].map(() => pid(make())));
  assert.equal(new Set(pids).size, 1);
});

test("many calls at once start one resident and each gets its own answer", async (t) => {
  const { home, make } = await scene(t);
  const bridge = make();
  const texts = [...Array(8).keys()].map((number) => `Line ${number}.`);
  await Promise.all(texts.map((text, number) => bridge.deliver(turn(`r${number}`, text), PATIENCE)));
  assert.deepEqual(await stored(home), texts);
});

test("a call keeps its deadline; a resident that hangs is killed and started anew", async (t) => {
  const { home, make } = await scene(t);
  const bridge = make();
  const first = await pid(bridge);
  await halt(first);
  const started = Date.now();
  await assert.rejects(bridge.deliver(turn("r1", "x".repeat(500_000)), 500), /did not answer/);
  assert.ok(Date.now() - started < 2000);
  await until(() => !alive(first));
  await bridge.deliver(turn("r2", "Second."), PATIENCE);
  await until(async () => (await queued(home)).length === 0);
  assert.equal((await stored(home)).length, 2);
});

test("somebody else's resident that hangs is killed too", async (t) => {
  const { make } = await scene(t);
  const [first, second] = [make(), make()];
  const before = await pid(first);
  await pid(second);
  await halt(before);
  await assert.rejects(second.call("ping", {}, 300), /did not answer/);
  await until(() => !alive(before));
  assert.notEqual(await pid(second), before);
});

test("a resident killed in the middle of its calls: every run is stored exactly once", async (t) => {
  const { home, make } = await scene(t);
  const bridge = make();
  const first = await pid(bridge);
  const texts = [...Array(30).keys()].map((number) => `Line ${String(number).padStart(2, "0")}.`);
  const told = texts.map((text, number) => bridge.deliver(turn(`r${number}`, text), PATIENCE));
  setTimeout(() => process.kill(first, "SIGKILL"), 100);
  await Promise.allSettled(told);
  await bridge.replay(PATIENCE);
  assert.deepEqual(await stored(home), texts);
});

test("what was not delivered waits on the disk (0600) and is stored exactly once", async (t) => {
  const { home, make } = await scene(t);
  const nobody = make(NOBODY);
  for (let time = 0; time < 2; time++) await assert.rejects(nobody.deliver(turn("r1", "First."), 1000));
  const waiting = await queued(home);
  assert.equal(waiting.length, 2);
  assert.equal((await stat(join(home, "queue", waiting[0]))).mode & 0o777, 0o600);
  const bridge = make();
  await bridge.deliver(turn("r2", "Second."), PATIENCE);
  await until(async () => (await queued(home)).length === 0);
  assert.deepEqual(await stored(home), ["First.", "Second."]);
});

test("where the disk takes nothing, runs wait in memory; one that is refused holds up none", async (t) => {
  const { home, make } = await scene(t);
  await mkdir(home, { mode: 0o700 });
  await writeFile(join(home, "queue"), "not a folder");
  const bridge = make(NOBODY);
  const wrong = { ...turn("r0"), event: { messages: [{ role: "user", content: 3 }] } };
  await assert.rejects(bridge.deliver(wrong, 1000));
  await assert.rejects(bridge.deliver(turn("r1", "First."), 1000));
  Object.assign(bridge, { command: SERVE, restsUntil: 0 });
  await bridge.deliver(turn("r2", "Second."), PATIENCE);
  await until(async () => (await stored(home)).length === 2);
});

test("each start that fails is followed by a longer pause, and no call waits in vain", async (t) => {
  const { home, make } = await scene(t);
  const bridge = make([process.execPath, "-e", "process.exit(3)"]);
  const pauses = [];
  for (let number = 0; number < 3; number++) {
    await assert.rejects(bridge.deliver(turn(`r${number}`), 5000));
    pauses.push(bridge.pausedUntil - Date.now());
  }
  assert.deepEqual(pauses, [...pauses].sort((a, b) => a - b));
  await assert.rejects(bridge.call("ping", {}, 50), /it is started again in/);
  assert.equal((await queued(home)).length, 3);
});

test("a stale socket keeps nobody from starting", async (t) => {
  const { home, make } = await scene(t);
  const path = socketPath(home);
  await mkdir(join(path, ".."), { recursive: true, mode: 0o700 });
  const code = `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 9))`;
  const { spawnSync } = await import("node:child_process");
  spawnSync(process.execPath, ["-e", code]);
  assert.ok((await stat(path)).isSocket());
  const [first, second] = [make(), make()];
  assert.equal(await pid(first), await pid(second));
});

test("a socket path that is too long is replaced by a short one", async (t) => {
  const { home, make } = await scene(t, { under: "x".repeat(120) });
  assert.ok(Buffer.byteLength(socketPath(home)) < 104);
  const [first, second] = [make(), make()];
  assert.equal(await pid(first), await pid(second));
});

test("what will never be taken is refused, and set aside in the queue", async (t) => {
  const { home, make } = await scene(t);
  const bridge = make();
  const wrong = { ...turn("r1"), event: { messages: [{ role: "user", content: 3 }] } };
  await assert.rejects(bridge.deliver(wrong, PATIENCE), { refused: true });
  assert.deepEqual(await queued(home), []);
  await bridge.enqueue(wrong);
  await bridge.enqueue(turn("r2"));
  await writeFile(join(home, "queue", "0.json"), "{");
  await bridge.replay(PATIENCE);
  assert.deepEqual(await queued(home), []);
  assert.equal((await readdir(join(home, "queue"))).length, 2);
  assert.equal((await stored(home)).length, 1);
});

test("a payload larger than a line may be is cut, not lost", async (t) => {
  const { home, make } = await scene(t);
  const bridge = make();
  const large = turn("r1", "Many.");
  for (let number = 0; number < 10; number++) {
    large.event.messages.push({ role: "toolResult", toolName: "read", content: "x".repeat(2_000_000) });
  }
  await bridge.deliver(large, PATIENCE).catch(() => {}); // it goes on where it takes long
  await until(async () => (await stored(home))[0] === "Many.");
});

test("a resident that takes its time to end is not killed for it", async (t) => {
  const { top, home, make } = await scene(t);
  const [path, ended] = [socketPath(home), join(top, "ended")];
  await mkdir(join(path, ".."), { recursive: true, mode: 0o700 });
  const code = `
    const { createInterface } = require("node:readline");
    const server = require("node:net").createServer((socket) => {
      createInterface(socket).on("line", (line) => socket.write(JSON.stringify({ id: JSON.parse(line).id, result: { pid: process.pid } }) + "\\n"));
      process.on("SIGTERM", () => socket.end());
    });
    server.listen(${JSON.stringify(path)});
    process.on("SIGTERM", () => (server.close(), setTimeout(() => require("node:fs").writeFileSync(${JSON.stringify(ended)}, ""), 500)));
  `;
  const bridge = make([process.execPath, "-e", code, "--"]);
  const before = await pid(bridge);
  process.kill(before, "SIGTERM");
  await until(() => bridge.link === null);
  const after = await pid(bridge);
  assert.notEqual(after, before);
  assert.ok((await stat(ended)).isFile());
  process.kill(after, "SIGKILL");
});

test("the child gets no secret but what is named", async (t) => {
  const { top, make } = await scene(t);
  Object.assign(process.env, { SOME_API_KEY: "secret", NAMED_KEY: "named", OTEL_SERVICE_NAME: "shop" });
  const told = join(top, "environment");
  const bridge = make(["/bin/sh", "-c", `env > ${told}; exit 3`], { environment: ["NAMED_KEY"] });
  await assert.rejects(bridge.call("ping", {}, PATIENCE), /MemTier's resident ended \(3\)/);
  const seen = await readFile(told, "utf8");
  assert.ok(!seen.includes("secret"));
  assert.match(seen, /NAMED_KEY=named/);
  assert.match(seen, /OTEL_SERVICE_NAME=shop/);
});

test("a server that only listens is given up at the deadline, and nothing of it is killed", async (t) => {
  const { home, make } = await scene(t);
  const path = socketPath(home);
  await mkdir(join(path, ".."), { recursive: true, mode: 0o700 });
  await writeFile(path.replace(/sock$/, "lock"), String(process.pid)); // this process is no resident
  const mute = createServer(() => {}).listen(path);
  t.after(() => mute.close());
  await assert.rejects(make().call("ping", {}, 300), /did not answer/);
});

for (const listens of [true, false]) {
  test(`a resident that reads nothing keeps no host from ending (listens: ${listens})`, async (t) => {
    const { home } = await scene(t);
    if (listens) {
      await mkdir(join(socketPath(home), ".."), { recursive: true, mode: 0o700 });
      const mute = createServer({ pauseOnConnect: true }, () => {}).listen(socketPath(home));
      t.after(() => mute.close());
    }
    const script = `
      import { Bridge } from ${JSON.stringify(new URL("../../hooks/openclaw/bridge.js", import.meta.url).href)};
      const command = ["/bin/sh", "-c", "exec sleep 60"];
      const bridge = new Bridge({ command, home: ${JSON.stringify(home)}, log: { warn: () => {} } });
      await bridge.deliver({ text: "x".repeat(1e6) }, 500).catch(() => console.log("late"));
      bridge.close();
    `;
    const child = execFile(process.execPath, ["--input-type=module", "-e", script]);
    const told = [];
    child.stdout.on("data", (data) => told.push(data));
    const ended = once(child, "exit");
    t.after(() => child.kill("SIGKILL"));
    assert.deepEqual(await Promise.race([ended, sleep(PATIENCE, "it goes on", { ref: false })]), [0, null]);
    assert.match(told.join(""), /late/);
  });
}

test("letting go of nothing, as a host that calls stop without start does, is fine", async (t) => {
  const { make } = await scene(t);
  const bridge = make();
  bridge.close();
  bridge.close();
  await bridge.replay(100);
});

test("the host's own model is asked where it is offered, and nowhere else", async (t) => {
  const { home, make } = await scene(t);
  await mkdir(join(home, "projects/p"), { recursive: true, mode: 0o700 });
  await writeFile(join(home, "projects/p/project.yaml"), "consolidation: {model: host}\n");
  const request = { project: "p", messages: [{ role: "user", content: "Which?" }], max_tokens: 9, seconds: 30 };
  const host = make();
  const job = make();
  await host.call("ping", {}, PATIENCE);
  await assert.rejects(job.call("complete", request, PATIENCE), /no running host offers its model/);
  const asked = [];
  host.offerModel("p", async (given) => {
    asked.push(given.messages[0].content);
    if (asked.length > 1) throw Object.assign(new Error("not this one"), { code: "LLM_COMPLETION_NOT_AUTHORIZED" });
    return { text: "That one." };
  });
  await until(() => job.call("offers", { project: "p" }, PATIENCE).then(() => true, () => false));
  assert.deepEqual(await job.call("complete", request, PATIENCE), { text: "That one." });
  await assert.rejects(job.call("complete", request, PATIENCE), /not this one/);
  assert.deepEqual(asked, ["Which?", "Which?"]);
  host.close();
  await assert.rejects(
    until(() => job.call("offers", { project: "p" }, PATIENCE).then(() => false, (error) => Promise.reject(error))),
    /no running host offers/,
  );
});

test("a connection that comes later gets the offer again", async (t) => {
  const { home, make } = await scene(t);
  const host = make();
  host.offerModel(null, async () => ({ text: "Here." }));
  await host.call("ping", {}, PATIENCE);
  assert.deepEqual(await host.call("offers", { project: "any" }, PATIENCE), { host: "openclaw" });
  const pid = (await host.call("ping", {}, PATIENCE)).pid;
  process.kill(pid, "SIGKILL");
  await until(() => !alive(pid));
  assert.deepEqual(await host.call("offers", { project: "any" }, PATIENCE), { host: "openclaw" });
});
