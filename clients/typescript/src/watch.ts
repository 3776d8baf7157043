import { BelayError, refusal } from "./error.js";
import { backoff, pause, type Fetch } from "./fetch.js";
import type { components } from "./schema.js";
import { messages } from "./sse.js";

/** One transition of an execution. */
export type Event = components["schemas"]["Event"];
export type Execution = components["schemas"]["Execution"];

/** How a stream of events ends: with the execution. */
export interface End {
  readonly state: Execution["state"];
  readonly seq: number;
}

export interface WatchOptions {
  /** Only events after this seq; from the first, unless said otherwise. */
  after?: number;
  /** The data of checkpoints and signals too. */
  data?: boolean;
  /** Gets the execution as it is whenever the stream is opened, the first time and after a broken connection. */
  onSnapshot?: (execution: Execution) => void;
  /** Ends the watch. */
  signal?: AbortSignal;
  /** For how long, in milliseconds, a stream that broke is opened again before the watch fails. */
  patienceMs?: number;
  /** After how many milliseconds without a sign of life a stream counts as broken. The server gives one every 15 s. */
  silenceMs?: number;
}

/** What watch needs to know of a client. */
export interface Source {
  url: string;
  headers: Headers;
  fetch: Fetch;
}

/**
 * watch yields the events of an execution in order of seq, each once and without a gap, until it has ended; the
 * generator's return value says how. A connection that breaks, or is silent for too long, is opened again after the last
 * event that was seen.
 */
export async function* watch(source: Source, id: string, o: WatchOptions = {}): AsyncGenerator<Event, End, undefined> {
  const patienceMs = o.patienceMs ?? 60_000;
  let last = o.after ?? 0;
  let seen = performance.now(); // when the stream last gave a sign of life
  for (let failures = 0; ; failures++) {
    const stop = new AbortController();
    const signal = o.signal ? AbortSignal.any([o.signal, stop.signal]) : stop.signal;
    const silent = setTimeout(() => stop.abort(), o.silenceMs ?? 45_000);
    try {
      const body = await open(source, id, last, o.data ?? false, signal);
      if (body === undefined) {
        const x = await read(source, id, signal);
        o.onSnapshot?.(x);
        return { state: x.state, seq: x.seq };
      }
      const alive = () => {
        seen = performance.now();
        silent.refresh();
      };
      for await (const m of messages(body, alive)) {
        failures = 0;
        if (m.event === "end") return JSON.parse(m.data) as End;
        if (m.event === "snapshot") o.onSnapshot?.(JSON.parse(m.data) as Execution);
        if (m.event !== "event") continue;
        const event = JSON.parse(m.data) as Event;
        if (event.seq <= last) continue;
        last = event.seq;
        yield event;
      }
    } catch (err) {
      o.signal?.throwIfAborted();
      if (err instanceof BelayError && err.code !== "unavailable" && err.code !== "rate_limited") throw err;
      if (performance.now() - seen > patienceMs) {
        throw new BelayError("unavailable", `the events of ${id} cannot be had since ${Math.round(patienceMs / 1000)} s`, { cause: err });
      }
    } finally {
      clearTimeout(silent);
      stop.abort();
    }
    await pause(backoff(failures), o.signal);
  }
}

/** read reads the execution as it is. */
async function read(source: Source, id: string, signal: AbortSignal): Promise<Execution> {
  const address = `${source.url}/v1/executions/${encodeURIComponent(id)}`;
  const response = await source.fetch(new Request(address, { headers: new Headers(source.headers), signal }));
  if (!response.ok) throw refusal(response, await response.json().catch(() => undefined));
  return (await response.json()) as Execution;
}

/** open asks for the stream after a seq; undefined if the execution ended with the event of that seq. */
async function open(source: Source, id: string, after: number, data: boolean, signal: AbortSignal): Promise<ReadableStream<Uint8Array> | undefined> {
  const headers = new Headers(source.headers);
  headers.set("Accept", "text/event-stream");
  if (after > 0) headers.set("Last-Event-ID", String(after));
  const address = `${source.url}/v1/executions/${encodeURIComponent(id)}/events${data ? "?data=true" : ""}`;
  const response = await source.fetch(new Request(address, { headers, signal }));
  if (!response.ok) throw refusal(response, await response.json().catch(() => undefined));
  if (response.status === 204) return undefined;
  if (response.body === null) throw new BelayError("unavailable", "the server answered without a stream");
  return response.body;
}
