// One session of the native protocol (docs/protocol.md), taken up again after its connection was lost.
//
//   opening ──ready──> open <──ready / lost──> lost ──> over | failed

import { Kept } from "./kept.js";

const PING_MS = 1000;
// Pings are not answered while the gateway holds us back: that is no reason to give a connection up soon.
const SILENT_MS = 30_000;
// How long a session waits for us (SCRIBE_GATEWAY_RESUME_S); then only a new one helps.
const RESUME_MS = 30_000;
const PAUSE_MS = 500;
// After these nothing is mended by coming back.
const FINAL_CODES = new Set([1008, 1009, 1011]);

export class Stream {
  #options;
  #key;
  #on;
  #kept = new Kept();
  #socket = null;
  #ready = null;
  #problem = null;
  #state = "opening";
  #lastEvent = 0;
  #ended = false;
  #lostAt = 0;
  #heardAt = 0;
  #pinged = new Map();
  #timer = 0;

  // `on`: state(name, problem), event(message, arrived_ms), safe(sample), roundTrip(ms).
  // A `problem` is { code, message, retry_after_s }; codes of ours are unreachable, lost and bad_key.
  constructor(options, key, on) {
    this.#options = options;
    this.#key = key;
    this.#on = on;
  }

  open() {
    this.#timer = setInterval(() => this.#tick(), PING_MS);
    this.#connect(this.#options);
  }

  send(samples) {
    this.#kept.add(samples);
    if (this.#state === "open") this.#socket.send(samples);
  }

  end() {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#state === "open") this.#say({ type: "end" });
  }

  // Leave at once; what is on its way is still decoded.
  abandon() {
    this.end();
    this.#finish("over");
    this.#socket?.close();
  }

  // Bytes that the browser has and the network has not; while there is no connection, all of them.
  get waiting() {
    return this.#state === "open" ? this.#socket.bufferedAmount : Infinity;
  }

  get session() {
    return this.#ready?.session;
  }

  get sent() {
    return this.#kept.sent;
  }

  #connect(query) {
    const url = new URL("/v1/stream", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    url.search = new URLSearchParams(query);
    this.#problem = null;
    this.#heardAt = performance.now();
    this.#pinged.clear();
    let socket;
    try {
      socket = this.#key
        ? new WebSocket(url, ["streamscribe.v1", `bearer.${this.#key}`])
        : new WebSocket(url);
    } catch {
      this.#finish("failed", { code: "bad_key" });
      return;
    }
    this.#socket = socket;
    socket.onmessage = ({ data }) => socket === this.#socket && this.#hear(JSON.parse(data));
    socket.onclose = ({ code }) => socket === this.#socket && this.#closed(code);
  }

  #hear(message) {
    this.#heardAt = performance.now();
    if (message.type === "ready") this.#begin(message);
    else if (message.type === "problem") this.#problem = message;
    else if (message.type === "pong") this.#pong(message);
    else if (message.event > this.#lastEvent) {
      this.#lastEvent = message.event;
      this.#on.event(message, Date.now());
      if (message.type === "end") this.#finish("over");
      if (message.type === "error") this.#finish("failed", message);
    }
  }

  #begin(ready) {
    this.#ready = ready;
    this.#lostAt = 0;
    this.#set("open");
    if (ready.ended) return;
    for (const samples of this.#kept.again(ready.next_sample)) this.#socket.send(samples);
    if (this.#ended) this.#say({ type: "end" });
  }

  #pong({ id, sample }) {
    this.#kept.safe(sample);
    this.#on.safe(sample);
    if (this.#pinged.has(id)) this.#on.roundTrip(performance.now() - this.#pinged.get(id));
    this.#pinged.delete(id);
  }

  #tick() {
    if (this.#state !== "open") return;
    if (performance.now() - this.#heardAt > SILENT_MS) {
      this.#socket.close();
      this.#closed(1006);
      return;
    }
    const id = String(performance.now());
    this.#pinged.set(id, Number(id));
    this.#say({ type: "ping", id });
  }

  #closed(code) {
    this.#socket = null;
    if (this.#state === "over" || this.#state === "failed") return;
    const told = this.#problem;
    if (!this.#ready) {
      this.#finish("failed", told ?? { code: "unreachable" });
    } else if ((told && !told.retryable) || FINAL_CODES.has(code)) {
      this.#finish("failed", told ?? { code: "internal" });
    } else {
      this.#lostAt ||= performance.now();
      if (performance.now() - this.#lostAt > RESUME_MS) this.#finish("failed", { code: "lost" });
      else this.#resumeSoon(told?.retry_after_s);
    }
  }

  #resumeSoon(retryAfter_s) {
    this.#set("lost");
    const { session, resume_token } = this.#ready;
    setTimeout(
      () => this.#state === "lost" && this.#connect({ session, resume_token, last_event: this.#lastEvent }),
      Math.max(PAUSE_MS, (retryAfter_s ?? 0) * 1000),
    );
  }

  #say(message) {
    this.#socket.send(JSON.stringify(message));
  }

  #finish(state, problem) {
    clearInterval(this.#timer);
    this.#set(state, problem);
  }

  #set(state, problem) {
    if (this.#state === state) return;
    this.#state = state;
    this.#on.state(state, problem);
  }
}
