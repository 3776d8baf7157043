import { BelayError, refusal, unreadable } from "./error.js";
import { isStream, readJSON, send, type Fetch } from "./fetch.js";
import { messages, type Message } from "./sse.js";
import { backoff, linked, pause } from "./time.js";

/** Source is the server of a stream, with the headers of each request. */
export interface Source {
  url: string;
  headers: Headers;
  fetch: Fetch;
  maxAnswerBytes: number;
}

export interface StreamOptions {
  /** Ends the stream. */
  signal?: AbortSignal;
  /** For how long, in milliseconds, a stream that broke is opened again before the call fails; 60 s by default. */
  patienceMs?: number;
  /** How many milliseconds without a sign of life make a stream count as broken. The server sends one every 15 s. */
  silenceMs?: number;
}

/** Asked is a stream that follow requests. */
export interface Asked extends StreamOptions {
  /** The path of the stream, with its query. */
  path: string;
  /** The id of the last message that the caller has. */
  last?: string | undefined;
  /** The body of the request, which is then a POST; it is made anew for each request. */
  body?: () => unknown;
}

/**
 * follow yields the messages of a stream of server-sent events. If a connection breaks, or is silent for too long,
 * follow opens another one after the last message that had an id. It returns when the server has nothing more to send
 * (204), and otherwise goes on until the caller leaves it: a stream that ends without its last message counts as
 * broken.
 */
export async function* follow(source: Source, o: Asked): AsyncGenerator<Message, void, undefined> {
  const patienceMs = o.patienceMs ?? 60_000;
  let last = o.last;
  let failing: number | undefined; // since when there was no sign of life
  for (let failures = 0; ; failures++) {
    const time = linked(o.signal, o.silenceMs ?? 45_000);
    let wait = backoff(failures);
    try {
      const body = await open(source, o, last, time.signal);
      if (body === undefined) return;
      let silent = true;
      const alive = () => {
        silent = false;
        failing = undefined;
        time.restart();
      };
      for await (const m of messages(body, alive)) {
        last = m.id ?? last;
        if (m.event !== "snapshot") failures = 0;
        time.stop(); // the caller may take its time
        yield m;
        time.restart();
      }
      if (silent) throw new Error("the stream ended without a message");
    } catch (err) {
      o.signal?.throwIfAborted();
      if (!mayPass(err)) throw err;
      failing ??= performance.now();
      if (err instanceof BelayError) wait = Math.max(wait, err.retryAfterMs ?? 0);
      if (performance.now() + wait - failing > patienceMs) throw away(o.path, patienceMs, err);
    } finally {
      time.release();
      time.abort();
    }
    await pause(wait, o.signal);
  }
}

/** mayPass reports whether a stream may be opened again after an error. */
function mayPass(err: unknown): boolean {
  return !(err instanceof BelayError) || err.code === "unavailable" || err.code === "rate_limited";
}

function away(path: string, patienceMs: number, cause: unknown): BelayError {
  const message = `no stream from ${path.replace(/\?.*/, "")} for ${Math.round(patienceMs / 1000)} s`;
  return new BelayError("unavailable", message, { cause });
}

/** open requests a stream; it returns undefined if the server has nothing more to send. */
async function open(
  source: Source,
  o: Asked,
  last: string | undefined,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array> | undefined> {
  const headers = new Headers(source.headers);
  headers.set("Accept", "text/event-stream");
  if (last !== undefined) headers.set("Last-Event-ID", last);
  // The cache of a browser cannot keep a stream, but it makes requests of one URL wait for each other, and sends a
  // waiting one again after an abort.
  const init: RequestInit = { headers, signal, redirect: "manual", cache: "no-store" };
  if (o.body !== undefined) {
    headers.set("Content-Type", "application/json");
    init.method = "POST";
    init.body = JSON.stringify(o.body());
  }
  const response = await send(source.fetch, new Request(source.url + o.path, init));
  if (response.status === 204) return undefined;
  if (!response.ok) throw refusal(response, await readJSON(response, source.maxAnswerBytes));
  if (!isStream(response) || response.body === null) {
    await response.body?.cancel();
    throw unreadable();
  }
  return response.body;
}

/** parse reads the data of a message. */
export function parse<T>(m: Message): T {
  let value: unknown;
  try {
    value = JSON.parse(m.data);
  } catch (cause) {
    throw unreadable(cause);
  }
  if (typeof value !== "object" || value === null) throw unreadable();
  return value as T;
}
