// Connect OpenClaw to MemTier's resident: its socket if one runs, else a child process on stdio.
//
// Payloads are forwarded unchanged. Every call has a deadline; a resident that does not answer is
// killed and restarted with back-off; a run that could not be delivered waits on disk. The counterpart
// of hooks/resident.py.

import { execFile, spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { mkdir, readdir, readFile, rename, unlink, writeFile } from "node:fs/promises";
import { createConnection } from "node:net";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { Waits } from "./waits.js";

const LONGEST_SOCKET_PATH = 103; // bytes, as memtier_plugin/core/paths.py has it
const CONNECT_MS = 1000;
const PING_MS = 2000;
const END_MS = 3000; // for pending writes to reach a child
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 60_000;
const MAX_QUEUED = 1000; // queued files tried in one go
const MAX_IN_MEMORY = 100; // payloads kept in memory while the disk is full
const MAX_REQUEST_BYTES = 15 * 1024 * 1024; // of a request; the resident's limit is slightly higher
const TEXTS = [1_000_000, 100_000, 10_000, 1_000, 100]; // successive limits for each text of a request that is too large
const FAILURES = 3; // failed queue files after which replay stops for now
// Variables passed to a child; an endpoint's key only if it is configured.
const PLAIN = /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_.*|TZ|TMPDIR|XDG_.*|VIRTUAL_ENV|MEMTIER_.*)$/;

/** Return the address of a home's resident, as `socket_path` in memtier_plugin/core/paths.py does. */
export function socketPath(home, environment = process.env) {
  const name = createHash("sha256").update(home).digest("hex").slice(0, 16) + ".sock";
  const runtime = environment.XDG_RUNTIME_DIR;
  const path = runtime ? join(runtime, "memtier", name) : join(home, "run", name);
  if (Buffer.byteLength(path) <= LONGEST_SOCKET_PATH) return path;
  const temporary = environment.TMPDIR || environment.TEMP || environment.TMP || "/tmp";
  return join(temporary, `memtier-${process.geteuid()}`, name);
}

export class Bridge {
  constructor({ command, home, environment = [], log }) {
    this.command = command?.length ? command : ["memtier"];
    this.home = homeOf(home || process.env.MEMTIER_HOME || "~/.memtier");
    this.environment = new Set(environment);
    this.log = log;
    this.waiting = new Map();
    this.link = null; // set once connected
    this.linking = null;
    this.failures = 0;
    this.restsUntil = 0;
    this.why = "";
    this.number = 0;
    this.replaying = null;
    this.kept = [];
    this.waits = new Waits(this.home);
  }

  /** Ask the resident, again if it went away; rejects at the deadline, or if there is none. */
  async call(method, params, deadlineMs) {
    const until = Date.now() + deadlineMs;
    try {
      return await this.asked(method, params, until);
    } catch (error) {
      if (!(error instanceof Broken)) throw error;
      return await this.asked(method, params, until);
    }
  }

  async asked(method, params, until) {
    const link = await within(this.linked(until), until - Date.now(), "MemTier's resident is not ready");
    try {
      const found = await this.sent(link, method, params, until);
      this.failures = 0;
      return found;
    } catch (error) {
      if (error instanceof Late) this.suspect(link);
      throw error;
    }
  }

  async sent(link, method, params, until) {
    const id = `${process.pid}-${++this.number}`;
    const answer = new Promise((done, failed) => this.waiting.set(id, { link, done, failed }));
    link.write(`{"jsonrpc":"2.0","id":"${id}","method":"${method}","params":${fitting(params)}}\n`);
    try {
      return await within(answer, until - Date.now(), `MemTier did not answer ${method}`);
    } finally {
      this.waiting.delete(id);
    }
  }

  /** Deliver a payload that must not be lost: if that fails now, it waits on disk. */
  async deliver(params, deadlineMs) {
    try {
      await this.call("hook", params, deadlineMs);
    } catch (error) {
      // It was refused, and would be again.
      if (!error.refused) await this.keep(params);
      throw error;
    }
    void this.replay(deadlineMs);
  }

  async keep(params) {
    const folder = join(this.home, "queue");
    const name = `${Date.now()}-${randomUUID()}.json`;
    const fresh = join(folder, `.${name}.${process.pid}.0.new`); // as write_private_file names it, so that leftovers of a killed process are cleaned up
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await writeFile(fresh, fitting(params), { mode: 0o600, flush: true });
      await rename(fresh, join(folder, name));
    } catch (error) {
      await unlink(fresh).catch(() => {});
      if (this.kept.push(params) > MAX_IN_MEMORY) this.kept.shift();
      this.log.warn(`memtier: a run waits in memory only: ${error.message}`);
    }
  }

  /** Deliver queued payloads, oldest first; a run delivered twice is stored once. */
  replay(deadlineMs) {
    this.replaying ??= this.replayed(deadlineMs)
      .catch(() => {}) // they stay queued
      .finally(() => (this.replaying = null));
    return this.replaying;
  }

  async replayed(deadlineMs) {
    while (this.kept.length) {
      try {
        await this.call("hook", this.kept[0], deadlineMs);
      } catch (error) {
        if (!error.refused) throw error;
        this.log.warn(`memtier: ${this.kept[0].name} was refused: ${error.message}`);
      }
      this.kept.shift();
    }
    const folder = join(this.home, "queue");
    const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(".json"));
    let failed = 0;
    for (const name of names.sort().slice(0, MAX_QUEUED)) {
      const path = join(folder, name);
      try {
        await this.call("hook", JSON.parse(await readFile(path, "utf8")), deadlineMs);
      } catch (error) {
        if (error.code === "ENOENT") continue; // another process delivered it
        if (!error.refused && !(error instanceof SyntaxError)) {
          if (!error.answered || ++failed === FAILURES) return;
          continue;
        }
        this.log.warn(`memtier: ${path} cannot be delivered and is set aside: ${error.message}`);
        await rename(path, `${path}.refused`).catch(() => {});
        continue;
      }
      await unlink(path).catch(() => {});
    }
  }

  /** Close the connection; a resident that we started finishes its work and ends. */
  close() {
    if (this.link?.suspected) void this.link.kill().catch(() => {});
    else this.link?.end();
    this.link = null;
  }

  linked(until = Date.now() + CONNECT_MS) {
    if (this.link) return Promise.resolve(this.link);
    this.linking ??= this.connect(until).finally(() => (this.linking = null));
    return this.linking;
  }

  async connect(until) {
    const found = await this.socket().catch(() => null);
    if (found) return (this.link = found);
    const rest = this.restsUntil - Date.now();
    if (rest > Math.max(0, until - Date.now())) throw new Error(`${this.why}; it is started again in ${rest} ms`);
    if (rest > 0) await new Promise((done) => setTimeout(done, rest));
    return (this.link = await this.child());
  }

  socket() {
    const path = socketPath(this.home);
    return new Promise((done, failed) => {
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
            const pid = Number(await readFile(path.replace(/\.sock$/, ".lock"), "utf8").catch(() => ""));
            if (pid && (await isResident(pid))) process.kill(pid, "SIGKILL");
            socket.destroy();
          },
        };
        this.attend(socket, link);
        socket.on("error", () => this.lost(link, "the connection to MemTier broke"));
        socket.on("close", () => this.lost(link, "MemTier's resident ended"));
        socket.unref();
        done(link);
      });
    });
  }

  child() {
    return new Promise((done, failed) => {
      const [program, ...first] = this.command;
      const child = spawn(program, [...first, "--home", this.home, "serve"], {
        stdio: ["pipe", "pipe", "pipe"],
        detached: true, // Ctrl-C in a terminal is the host's, not ours
        env: Object.fromEntries(
          Object.entries(process.env).filter(([name]) => PLAIN.test(name) || this.environment.has(name)),
        ),
      });
      let said = "";
      const link = {
        write: (line) => child.stdin.write(line),
        end: () => {
          child.stdin.end();
          // Unread data in a pipe would keep the host from exiting.
          setTimeout(() => child.stdin.destroy(), END_MS).unref();
        },
        kill: async () => child.kill("SIGKILL"),
      };
      child.on("error", (error) => {
        this.failed(`cannot start ${program}: ${error.message}`);
        this.lost(link, error.message);
        failed(new Error(this.why));
      });
      child.stderr?.on("data", (data) => (said = (said + data).slice(-2000)));
      child.stdin?.on("error", () => {});
      child.on("exit", (code, signal) => {
        if (!link.suspected && (this.link === link || code)) {
          this.failed(`MemTier's resident ended (${signal ?? code}) ${said.trim()}`);
        }
        this.lost(link, "MemTier's resident ended");
      });
      child.once("spawn", () => {
        this.attend(child.stdout, link);
        for (const part of [child, child.stdin, child.stdout, child.stderr]) part.unref?.();
        done(link);
      });
    });
  }

  attend(stream, link) {
    let parts = []; // of an incomplete line; joined once, to stay linear on long lines
    stream.setEncoding("utf8");
    stream.on("data", (data) => {
      const lines = data.split("\n");
      if (lines.length > 1) {
        this.answered(parts.join("") + lines[0]);
        for (const line of lines.slice(1, -1)) this.answered(line);
        parts = [];
      }
      parts.push(lines.at(-1));
    });
    stream.on("error", () => this.lost(link, "the pipe to MemTier broke"));
  }

  answered(line) {
    let answer;
    try {
      answer = JSON.parse(line);
    } catch {
      return; // not a message of the protocol
    }
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
    if (link.gone || link.suspected) return;
    link.suspected = true;
    this.sent(link, "ping", {}, Date.now() + PING_MS).then(
      () => (link.suspected = false),
      async () => {
        if (link.gone) return;
        this.failed("MemTier's resident hangs and is ended");
        await link.kill().catch(() => {}); // before the socket is tried again
        this.lost(link, "MemTier's resident hangs");
      },
    );
  }

  failed(why) {
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.failures++);
    this.restsUntil = Date.now() + pause;
    this.why = why;
    this.log.warn(`memtier: ${why}`);
  }

  lost(link, why) {
    link.gone = true;
    if (this.link === link) this.link = null;
    for (const waiting of this.waiting.values()) {
      if (waiting.link === link) waiting.failed(new Broken(why));
    }
  }
}

class Broken extends Error {}

class Late extends Error {}

function homeOf(home) {
  return resolve(home.replace(/^~(?=\/|$)/, homedir()));
}

function within(promise, ms, what) {
  let timer;
  const late = new Promise((_, failed) => {
    timer = setTimeout(() => failed(new Late(`${what} within ${Math.max(0, ms)} ms`)), Math.max(0, ms));
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Encode parameters as JSON within the resident's limit; long texts are truncated if needed. */
function fitting(params) {
  let text = JSON.stringify(params);
  for (const most of TEXTS) {
    if (Buffer.byteLength(text) <= MAX_REQUEST_BYTES) break;
    text = JSON.stringify(params, (_, part) =>
      typeof part === "string" && part.length > most
        ? `${part.slice(0, most)}\n[... ${part.length - most} characters left out]`
        : part,
    );
  }
  return text;
}

/** Tell whether a process is a `memtier serve`: its id may have been reused. */
function isResident(pid) {
  return new Promise((done) => {
    execFile("ps", ["-ww", "-o", "args=", "-p", String(pid)], { timeout: 2000 }, (error, told) =>
      done(!error && told.includes("memtier") && told.includes("serve")),
    );
  });
}
