// Residents on other machines (`memtier serve --tcp`): their order for a project, and requests to them by HTTP.

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { isIP } from "node:net";

const PORT = 7420;
const CONNECT_MS = 1000; // for a connection, TLS and the token
const MAX_REQUEST_BYTES = (15 * 1024 * 1024) / 4; // the resident's limit is slightly higher
const FIRST_PAUSE_MS = 500; // before a resident that failed is tried again
const LONGEST_PAUSE_MS = 30_000;

/** Return the address that a text means, as `parse_address` in memtier_plugin/core/residents.py does. */
export function parseAddress(text) {
  const match = /^(?:(tls|tcp):\/\/)?(?:\[([0-9a-f:.]+)\]|([^\s/?#@:[\]]+))(?::(\d+))?\/?$/i.exec(text);
  const port = Number(match?.[4] ?? PORT);
  if (!match || port > 65_535) throw new Error(`${JSON.stringify(text)} is not a resident's address; expected one like tls://memory.example.org`);
  const host = (match[2] ?? match[3]).toLowerCase();
  const tls = (match[1] ?? "tls").toLowerCase() === "tls";
  if (!tls && !isLoopback(host)) throw new Error(`${JSON.stringify(text)} would send the token in plain text: use tls://${host}`);
  return { host, port, tls, name: `${tls ? "tls" : "tcp"}://${host.includes(":") ? `[${host}]` : host}:${port}` };
}

function isLoopback(host) {
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/** Return residents in the order in which they serve a project, as `in_order` in core/residents.py does. */
export function inOrder(addresses, project) {
  const weight = ({ name }) => createHash("sha256").update(`${name}\n${project}`).digest("hex");
  const unique = [...new Map(addresses.map((address) => [address.name, address])).values()];
  return unique.sort((a, b) => (weight(a) < weight(b) ? 1 : -1));
}

export class Residents {
  constructor({ residents, tokenFile, caFile, project }) {
    this.residents = residents;
    this.project = project;
    this.tokenFile = tokenFile || process.env.MEMTIER_TOKEN_FILE;
    this.token = tokenFile ? "" : process.env.MEMTIER_TOKEN;
    this.caFile = caFile || process.env.MEMTIER_CA_FILE;
    this.failures = new Map();
    this.paused = new Map();
  }

  /** Return the residents of a plugin's configuration or of the environment; null if there are none. */
  static of(config) {
    const named = config.residents?.length ? config.residents : (process.env.MEMTIER_RESIDENTS ?? "").split(",");
    const residents = named.map((text) => text.trim()).filter(Boolean);
    return residents.length ? new Residents({ ...config, residents }) : null;
  }

  /**
   * Return a link to the first resident of the project that is there. Another than the first (`standIn`) answers
   * only if the project is shared: of any other it would have another memory.
   * @param settle takes the answer to a request that was written to a link
   * @param drop takes the reason why a link is of no use any more
   */
  async connect(until, settle, drop) {
    const reasons = [];
    for (const [rank, address] of inOrder(this.residents.map(parseAddress), this.project).entries()) {
      const pause = this.paused.get(address.name);
      if (pause && pause.until > Date.now()) {
        reasons.push(pause.reason);
        continue;
      }
      try {
        const link = await this.open(address, Math.min(until, Date.now() + CONNECT_MS), rank > 0, settle, drop);
        this.failures.delete(address.name);
        return link;
      } catch (error) {
        reasons.push(this.noteFailure(address, `${address.name}: ${error.message}`));
      }
    }
    throw new Error(reasons.join("; "));
  }

  async open(address, until, standIn, settle, drop) {
    const token = this.token || (this.tokenFile && (await readFile(this.tokenFile, "utf8")).trim());
    if (!token) throw new Error("no token: name its file (tokenFile), or set MEMTIER_TOKEN");
    const ca = this.caFile && address.tls ? await readFile(this.caFile) : undefined;
    const { host, port } = address;
    const module = address.tls ? https : http;
    const agent = new module.Agent({ keepAlive: true, ca, servername: isIP(host) ? "" : host, minVersion: "TLSv1.2" });
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const path = standIn ? "/?stand_in=true" : "/";
    const post = (line) =>
      new Promise((done, failed) => {
        const request = module.request({ host, port, path, agent, headers, method: "POST" }, (response) => {
          const parts = [];
          response.on("data", (part) => parts.push(part));
          response.on("error", failed);
          response.on("end", () => {
            const text = Buffer.concat(parts).toString("utf8");
            if (response.statusCode < 300) return done(text);
            failed(new Error(reasonOf(text) ?? `it answers with status ${response.statusCode}`));
          });
        });
        request.on("error", failed);
        request.on("socket", (socket) => socket.unref()); // a call that waits has a timer of its own
        request.end(line);
      });
    const link = {
      standIn,
      maxBytes: MAX_REQUEST_BYTES,
      until: Date.now() + LONGEST_PAUSE_MS, // for a stand-in
      write: (line) => {
        post(line).then(
          (text) => text && settle(link, text),
          (error) => drop(link, error.message),
        );
      },
      end: () => Object.values(agent.freeSockets).flat().forEach((socket) => socket.destroy()),
      kill: async () => {
        this.noteFailure(address, `${address.name}: it does not answer`); // it is left alone for a while
        agent.destroy();
      },
    };
    try {
      await inTime(post(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" })), until); // brings the token
      return link;
    } catch (error) {
      agent.destroy();
      throw error;
    }
  }

  noteFailure(address, reason) {
    const failures = this.failures.get(address.name) ?? 0;
    this.failures.set(address.name, failures + 1);
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures);
    this.paused.set(address.name, { until: Date.now() + pause, reason });
    return reason;
  }
}

/** Return the message of an answer that is an error, if it is one. */
function reasonOf(text) {
  try {
    return JSON.parse(text).error?.message;
  } catch {
    return undefined;
  }
}

function inTime(promise, until) {
  let timer;
  const late = new Promise((_, failed) => {
    timer = setTimeout(() => failed(new Error("no connection in time")), Math.max(50, until - Date.now()));
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
