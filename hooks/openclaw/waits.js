// Record hook latency for `memtier status`; the counterpart of memtier_plugin/operations/hook_calls.py.
//
// Only the host can measure it when the resident is slow, hangs or is missing.

import { mkdir, open, readFile, rename, stat, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";

const NAME = "openclaw.waits.json";
const MAX_NOTED = 200; // agents and hooks in the file; the least recently called are dropped first
const SLOWEST_DAYS = 30; // for which the slowest call is reported
const LATER_MS = 500;
const LOCK_MS = 1000;
const DEAD_MS = 5000; // after which the lock's holder is presumed dead
const DAY_MS = 86_400_000;

export class Waits {
  constructor(home) {
    this.folder = join(home, "hosts");
    this.pending = [];
    this.noting = null;
    this.timer = null;
  }

  /** Record one call later, outside of the turn. */
  later(wait) {
    this.add(wait);
    this.timer ??= setTimeout(() => void this.flush(), LATER_MS).unref();
  }

  /** Record one call; if the disk is full, write it with the next one. Never rejects. */
  note(wait) {
    this.add(wait);
    return this.flush();
  }

  add(wait) {
    this.pending.push(wait);
    this.pending.splice(0, this.pending.length - MAX_NOTED);
  }

  flush() {
    clearTimeout(this.timer);
    this.timer = null;
    return (this.noting = (this.noting ?? Promise.resolve()).then(() => this.write()).catch(() => {}));
  }

  async write() {
    if (!this.pending.length) return; // written with the previous one
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const lock = join(this.folder, ".openclaw.waits.lock");
    const fresh = join(this.folder, `.${NAME}.${process.pid}.0.new`); // as `write_private_file` has it
    await acquireLock(lock);
    try {
      const path = join(this.folder, NAME);
      const count = this.pending.length;
      let waits = await readFile(path, "utf8").then(JSON.parse).catch(() => []);
      if (!Array.isArray(waits)) waits = [];
      for (const wait of this.pending.slice(0, count)) waits = recordWait(waits, wait, new Date());
      await writeFile(fresh, JSON.stringify(waits, null, 1), { mode: 0o600 });
      await rename(fresh, path);
      this.pending.splice(0, count);
    } catch (error) {
      await unlink(fresh).catch(() => {});
      throw error;
    } finally {
      await unlink(lock).catch(() => {});
    }
  }
}

/** Return the records with one more call counted, the latest record last. */
export function recordWait(waits, { project = null, agent, hook, ms, answered }, now) {
  const isSame = (wait) => wait?.project === project && wait.agent === agent && wait.hook === hook;
  const before = waits.findLast(isSame) ?? { calls: 0, failed: 0, last_failed: null };
  const updated = { project, agent, hook, ...before, calls: before.calls + 1, last: now.toISOString(), last_ms: ms };
  const longAgo = !(Date.parse(before.slowest_at) >= now - SLOWEST_DAYS * DAY_MS);
  if (longAgo || ms >= before.slowest_ms) {
    Object.assign(updated, { slowest_ms: ms, slowest_at: now.toISOString() });
  }
  if (!answered) Object.assign(updated, { failed: before.failed + 1, last_failed: now.toISOString() });
  return [...waits.filter((wait) => !isSame(wait)), updated].slice(-MAX_NOTED);
}

/** Acquire a lock across the host's processes: a file that a single process can create. */
async function acquireLock(lock) {
  const until = Date.now() + LOCK_MS;
  for (;;) {
    try {
      return await (await open(lock, "wx", 0o600)).close();
    } catch (error) {
      if (error.code !== "EEXIST" || Date.now() > until) throw error;
    }
    const { mtimeMs } = await stat(lock).catch(() => ({ mtimeMs: Infinity }));
    if (Date.now() - mtimeMs > DEAD_MS) await unlink(lock).catch(() => {});
    else await new Promise((done) => setTimeout(done, 20));
  }
}
