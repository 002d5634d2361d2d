// Connect OpenClaw to the resident of a home by its socket; start one if none runs. It is the home's and
// not ours: it outlives this process, and ends by itself.
//
// Payloads are forwarded unchanged. Every call has a deadline; a resident that does not answer is
// killed and restarted with back-off; a run that could not be delivered waits on disk. The counterpart
// of hooks/resident.py.

import { execFile, spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { closeSync, constants, existsSync, lstatSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { mkdir, readdir, readFile, rename, unlink, writeFile } from "node:fs/promises";
import { createConnection } from "node:net";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { Residents } from "./residents.js";
import { Waits } from "./waits.js";

const LONGEST_SOCKET_PATH = 103; // bytes, as memtier_plugin/core/paths.py has it
const NETWORK = new Set(["nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"]);
const CONNECT_MS = 1000;
const RETRY_MS = 20; // between two tries to connect
const START_MS = 30_000; // that a resident may take to answer, on a machine that is busy
const PING_MS = 8000; // a machine may be busy
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 60_000;
const MAX_QUEUED = 1000; // queued files tried in one go
const MAX_IN_MEMORY = 100; // payloads kept in memory while the disk is full
const MAX_REQUEST_BYTES = 15 * 1024 * 1024; // of a request; the resident's limit is slightly higher
const TEXT_LIMITS = [1_000_000, 100_000, 10_000, 1_000, 100]; // successive limits for each text of a request that is too large
const MAX_FAILED = 3; // failed deliveries after which replay stops for now
// Variables passed to a resident; an endpoint's key only if it is configured.
const PASSED_VARIABLES = /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_.*|TZ|TMPDIR|XDG_.*|VIRTUAL_ENV|MEMTIER_.*|OTEL_.*)$/;

/** Return the address of a home's resident, as `socket_path` in memtier_plugin/core/paths.py does. */
export function socketPath(home) {
  const path = join(home, "run", "memtier.sock");
  if (Buffer.byteLength(path) <= LONGEST_SOCKET_PATH && !isOnNetwork(home)) return path;
  const name = createHash("sha256").update(home).digest("hex").slice(0, 16) + ".sock";
  return join("/tmp", `memtier-${process.geteuid()}`, name);
}

/** Tell whether a folder lies on a network file system (known on Linux only). */
export function isOnNetwork(folder, list = "/proc/self/mounts") {
  let [best, kind] = ["", ""];
  let mounts;
  try {
    mounts = readFileSync(list, "utf8");
  } catch {
    return false;
  }
  for (const line of mounts.trim().split("\n")) {
    const [, escaped, type] = line.split(" ");
    const point = escaped.replaceAll("\\040", " ");
    const inside = folder === point || folder.startsWith(`${point.replace(/\/+$/, "")}/`);
    if (inside && point.length >= best.length) [best, kind] = [point, type];
  }
  return NETWORK.has(kind);
}

export class Bridge {
  constructor({ command, home, environment = [], root, log, ...config }) {
    this.residents = Residents.of({ project: "default", ...config });
    this.command = command?.length ? command : ["memtier"];
    this.home = homeOf(home || process.env.MEMTIER_HOME || "~/.memtier");
    this.environment = new Set(environment);
    this.root = root; // the plugin's folder
    this.log = log;
    this.waiting = new Map();
    this.link = null; // set once connected
    this.linking = null;
    this.started = null; // a resident that we started and that has not ended
    this.awaitedSince = 0; // when it was started, or when we lost it: it may be ending
    this.failures = 0;
    this.pausedUntil = 0;
    this.failure = "";
    this.number = 0;
    this.replaying = null;
    this.inMemory = [];
    this.waits = new Waits(this.home);
    this.models = new Map(); // by project: the host's own model, where its user consented
  }

  /** Let the resident ask the host's own model for a project; `complete` returns a promise. */
  offerModel(project, complete) {
    const known = this.models.has(project);
    this.models.set(project, complete);
    if (!known && !this.residents) this.tell("offer_model", { host: "openclaw", project });
  }

  /** Send the resident what needs no answer, if it is there. */
  tell(method, params) {
    this.link?.write(`${JSON.stringify({ jsonrpc: "2.0", method, params })}\n`);
  }

  /** Answer what the resident asks of this host: a completion of the host's model. */
  async answer(link, { id, method, params }) {
    const complete = method === "complete" ? this.models.get(params?.offer) : undefined;
    const reply = { jsonrpc: "2.0", id };
    try {
      if (!complete) throw Object.assign(new Error("the host's model is not offered"), { code: "NOT_OFFERED" });
      reply.result = await complete(params);
    } catch (error) {
      const causes = [error, error.cause].filter(Boolean).map((each) => each.message ?? String(each));
      reply.error = { code: -32000, message: causes.join(": "), data: { error: error.code ?? "FAILED" } };
    }
    if (!link.closed) link.write(`${JSON.stringify(reply)}\n`);
  }

  /** Call the resident, and once more if the connection broke; reject at the deadline or if none starts. */
  async call(method, params, deadlineMs) {
    const until = Date.now() + deadlineMs;
    try {
      return await this.request(method, params, until);
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      return await this.request(method, params, until);
    }
  }

  async request(method, params, until) {
    const link = await within(this.connected(until), until - Date.now(), "MemTier's resident is not ready");
    try {
      const result = await this.send(link, method, params, until);
      this.failures = 0;
      return result;
    } catch (error) {
      if (error instanceof Late) this.suspect(link);
      throw error;
    }
  }

  async send(link, method, params, until) {
    const id = `${process.pid}-${++this.number}`;
    const answer = new Promise((done, failed) => this.waiting.set(id, { link, done, failed }));
    const seconds = Math.max(0, until - Date.now()) / 1000;
    link.write(`{"jsonrpc":"2.0","id":"${id}","method":"${method}","seconds":${seconds},"params":${encodeWithinLimit(params, link.maxBytes)}}\n`);
    try {
      return await within(answer, until - Date.now(), `MemTier did not answer ${method}`);
    } finally {
      this.waiting.delete(id);
    }
  }

  /** Deliver a payload that must not be lost; queue it on disk if delivery fails now. */
  async deliver(params, deadlineMs) {
    try {
      await this.call("hook", params, deadlineMs);
    } catch (error) {
      // A refused payload would be refused again.
      if (!error.refused) await this.enqueue(params);
      throw error;
    }
    void this.replay(deadlineMs);
  }

  async enqueue(params) {
    const folder = this.queue();
    const name = `${Date.now()}-${randomUUID()}.json`;
    const fresh = join(folder, `.${name}.${process.pid}.0.new`); // as write_private_file names it, so that leftovers of a killed process are cleaned up
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await writeFile(fresh, encodeWithinLimit(params), { mode: 0o600, flush: true });
      await rename(fresh, join(folder, name));
    } catch (error) {
      await unlink(fresh).catch(() => {});
      if (this.inMemory.push(params) > MAX_IN_MEMORY) this.inMemory.shift();
      this.log.warn(`memtier: a run waits in memory only: ${error.message}`);
    }
  }

  /** Return the folder of what waits: for residents elsewhere apart from what waits for the home's own. */
  queue() {
    return this.residents ? join(this.home, "queue", "remote") : join(this.home, "queue");
  }

  /** Deliver queued payloads, oldest first; a run delivered twice is stored once. */
  replay(deadlineMs) {
    this.replaying ??= this.replayQueue(deadlineMs)
      .catch(() => {}) // they stay queued
      .finally(() => (this.replaying = null));
    return this.replaying;
  }

  async replayQueue(deadlineMs) {
    while (this.inMemory.length) {
      try {
        await this.call("hook", this.inMemory[0], deadlineMs);
      } catch (error) {
        if (!error.refused) throw error;
        this.log.warn(`memtier: ${this.inMemory[0].name} was refused: ${error.message}`);
      }
      this.inMemory.shift();
    }
    const folder = this.queue();
    const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(".json"));
    let failed = 0;
    for (const name of names.sort().slice(0, MAX_QUEUED)) {
      const path = join(folder, name);
      try {
        await this.call("hook", JSON.parse(await readFile(path, "utf8")), deadlineMs);
      } catch (error) {
        if (error.code === "ENOENT") continue; // another process delivered it
        if (!error.refused && !(error instanceof SyntaxError)) {
          if (!error.answered || ++failed === MAX_FAILED) return;
          continue;
        }
        this.log.warn(`memtier: ${path} cannot be delivered and is set aside: ${error.message}`);
        await rename(path, `${path}.refused`).catch(() => {});
        continue;
      }
      await unlink(path).catch(() => {});
    }
  }

  /** Close the connection; the resident goes on. */
  close() {
    this.link?.end();
    this.link = null;
  }

  connected(until = Date.now() + CONNECT_MS) {
    const outdated = this.link?.standIn && this.link.until < Date.now(); // the first may be back
    if (this.link && !outdated) return Promise.resolve(this.link);
    this.linking ??= this.connect(until).finally(() => (this.linking = null));
    return this.linking;
  }

  async connect(until) {
    if (this.residents) {
      const old = this.link;
      this.link = await this.residents.connect(
        until,
        (link, text) => this.settle(link, text),
        (link, reason) => this.drop(link, reason),
      );
      old?.end();
      return this.link;
    }
    for (const { failures } = this; ; await wait(RETRY_MS)) {
      const running = await this.openSocket().catch(() => null);
      if (running) return this.use(running);
      if (this.failures > failures) throw new Error(this.failure);
      const pause = this.pausedUntil - Date.now();
      if (pause > Math.max(0, until - Date.now())) throw new Error(`${this.failure}; it is started again in ${pause} ms`);
      if (pause > 0) await wait(pause);
      if (Date.now() - this.awaitedSince > START_MS) this.started?.kill("SIGKILL");
      this.started ??= await this.start();
      if (Date.now() > until + START_MS) throw new Error("MemTier's resident takes no connection");
    }
  }

  use(link) {
    this.link = link;
    for (const project of this.models.keys()) this.tell("offer_model", { host: "openclaw", project });
    return link;
  }

  openSocket() {
    const path = socketPath(this.home);
    return new Promise((done, failed) => {
      if (lstatSync(dirname(path)).uid !== process.geteuid()) throw new Error("another user's folder");
      const socket = createConnection(path);
      const timer = setTimeout(() => socket.destroy(new Error("no connection")), CONNECT_MS);
      socket.once("error", (error) => {
        clearTimeout(timer);
        failed(error);
      });
      socket.once("connect", () => {
        clearTimeout(timer);
        const link = {
          write: (line) => socket.write(line),
          end: () => socket.end(),
          kill: async () => {
            const { pid } = readOwner(path);
            if (pid && !isLoading(path) && (await isResident(pid))) process.kill(pid, "SIGKILL");
            socket.destroy();
          },
        };
        this.readLines(socket, link);
        socket.on("error", () => this.drop(link, "the connection to MemTier broke"));
        socket.on("close", () => this.drop(link, "MemTier's resident ended"));
        socket.unref();
        done(link);
      });
    });
  }

  /** Start a resident, which takes the home's socket unless another was faster. */
  start() {
    return new Promise((done, failed) => {
      const [program, ...programArgs] = this.command;
      const folder = join(this.home, "logs");
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      const path = join(folder, "resident.log");
      const log = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW, 0o600);
      this.awaitedSince = Date.now();
      const child = spawn(program, [...programArgs, "--home", this.home, "serve"], {
        stdio: ["ignore", log, log],
        detached: true, // Ctrl-C in a terminal, and its end, are the host's
        env: Object.fromEntries(
          Object.entries(process.env).filter(([name]) => PASSED_VARIABLES.test(name) || this.environment.has(name)),
        ),
      });
      closeSync(log);
      child.on("error", (error) => {
        this.backOff(`cannot start ${program}: ${error.message}${error.code === "ENOENT" ? this.remedy() : ""}`);
        failed(new Error(this.failure));
      });
      child.on("exit", (code, signal) => {
        this.started = null;
        if (code !== 0) this.backOff(`MemTier's resident ended (${signal ?? code}) ${lastLine(path)}`);
      });
      child.once("spawn", () => {
        child.unref();
        done(child);
      });
    });
  }

  /** Say how MemTier's command gets here; a checkout brings its installer along. */
  remedy() {
    const installer = join(this.root ?? "", "install.sh");
    const way = this.root && existsSync(installer) ? `run ${installer}` : "install MemTier";
    return `; ${way}, or name it: openclaw config set plugins.entries.memtier.config.command '["/path/to/memtier"]'`;
  }

  readLines(stream, link) {
    let parts = []; // of an incomplete line; joined once, to stay linear on long lines
    stream.setEncoding("utf8");
    stream.on("data", (data) => {
      const lines = data.split("\n");
      if (lines.length > 1) {
        this.settle(link, parts.join("") + lines[0]);
        for (const line of lines.slice(1, -1)) this.settle(link, line);
        parts = [];
      }
      parts.push(lines.at(-1));
    });
    stream.on("error", () => this.drop(link, "the pipe to MemTier broke"));
  }

  settle(link, line) {
    let answer;
    try {
      answer = JSON.parse(line);
    } catch {
      return; // not a message of the protocol
    }
    if (answer?.method) return void this.answer(link, answer);
    const waiting = this.waiting.get(answer.id);
    if (!waiting) return;
    if (!answer.error) return waiting.done(answer.result);
    const error = new Error(answer.error.message);
    error.answered = true;
    error.refused = answer.error.code === -32602 || answer.error.data?.error === "MessageError";
    waiting.failed(error);
  }

  /** Kill a resident that does not answer a ping; a slow one may continue. */
  suspect(link) {
    if (link.closed || link.suspected || isLoading(socketPath(this.home))) return;
    link.suspected = true;
    this.send(link, "ping", {}, Date.now() + PING_MS).then(
      () => (link.suspected = false),
      async () => {
        if (link.closed) return;
        this.backOff("MemTier's resident hangs; stopping it");
        await link.kill().catch(() => {}); // before the socket is tried again
        this.drop(link, "MemTier's resident hangs");
      },
    );
  }

  backOff(reason) {
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.failures++);
    this.pausedUntil = Date.now() + pause;
    this.failure = reason;
    this.log.warn(`memtier: ${reason}`);
  }

  drop(link, reason) {
    link.closed = true;
    if (this.link === link) {
      this.link = null;
      this.awaitedSince = Date.now();
    }
    for (const waiting of this.waiting.values()) {
      if (waiting.link === link) waiting.failed(new Broken(reason));
    }
  }
}

class Broken extends Error {}

class Late extends Error {}

function homeOf(home) {
  return resolve(home.replace(/^~(?=\/|$)/, homedir()));
}

function within(promise, ms, problem) {
  let timer;
  const late = new Promise((_, failed) => {
    timer = setTimeout(() => failed(new Late(`${problem} within ${Math.max(0, ms)} ms`)), Math.max(0, ms));
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Wait, but keep no host from ending: a call that waits has a timer of its own. */
function wait(ms) {
  return new Promise((done) => setTimeout(done, ms).unref());
}

function lastLine(path) {
  try {
    return readFileSync(path, "utf8").trim().split("\n").at(-1).slice(0, 200);
  } catch {
    return "";
  }
}

/** Return what is noted of the owner of a socket, as `find_owner` in core/residents.py does. */
export function readOwner(path) {
  const lock = path.replace(/\.sock$/, ".lock");
  try {
    const notes = readFileSync(lock, "utf8").split("\n").slice(0, -1).map((note) => note.split(" "));
    const [pid, version] = notes.at(-1);
    const ready = !version || notes.some((note) => note[2] === "ready");
    return { pid: Number(pid), ready, since: lstatSync(lock).mtimeMs };
  } catch {
    return {};
  }
}

/** Tell whether the owner of a socket is still being loaded, and not for too long. */
function isLoading(path) {
  const { ready, since } = readOwner(path);
  return ready === false && Date.now() - since < START_MS;
}

/** Encode parameters as JSON within the resident's limit; long texts are truncated if needed. */
function encodeWithinLimit(params, maxBytes = MAX_REQUEST_BYTES) {
  let text = JSON.stringify(params);
  for (const limit of TEXT_LIMITS) {
    if (Buffer.byteLength(text) <= maxBytes) break;
    text = JSON.stringify(params, (_, part) =>
      typeof part === "string" && part.length > limit
        ? `${part.slice(0, limit)}\n[... ${part.length - limit} characters left out]`
        : part,
    );
  }
  return text;
}

/** Tell whether a process is a `memtier serve`: its id may have been reused. */
function isResident(pid) {
  return new Promise((done) => {
    execFile("ps", ["-ww", "-o", "args=", "-p", String(pid)], { timeout: 2000 }, (error, stdout) =>
      done(!error && stdout.includes("memtier") && stdout.includes("serve")),
    );
  });
}
