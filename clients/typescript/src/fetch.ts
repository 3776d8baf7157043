import { BelayError, invalid, retryAfter } from "./error.js";
import { backoff, linked, pause } from "./time.js";

/** Fetch carries a request out: the global fetch, or one with a proxy. */
export type Fetch = (request: Request) => Promise<Response>;

/** How persistently a call that is safe to repeat is repeated. */
export interface Patience {
  /** For how long, in milliseconds, counted from the first try. */
  patienceMs: number;
  /** How long one try may take. It is longer than the longest wait that a request can ask for. */
  tryMs: number;
  /** The largest size of an answer, in bytes; a stream has no such limit. */
  maxAnswerBytes: number;
}

const leastPauseMs = 100;

/**
 * patient carries requests out with fetch. It sends a request again if no answer came, or after 503, or after 429,
 * which a server sends before it does anything. A request that is not safe to repeat is sent again only after 429,
 * because otherwise the first one may have been carried out.
 */
export function patient(fetch: Fetch, p: Patience, safe: (r: Request) => boolean = isSafe): Fetch {
  return async (request) => {
    const until = performance.now() + p.patienceMs;
    for (let tries = 0; ; tries++) {
      const left = () => until - performance.now();
      let wait = backoff(tries);
      try {
        const response = await carry(fetch, request, p);
        const again = response.status === 429 || (response.status === 503 && safe(request));
        if (!again) return response;
        wait = Math.max(retryAfter(response) ?? wait, leastPauseMs);
        if (wait > left()) return response;
        await response.body?.cancel();
      } catch (cause) {
        request.signal.throwIfAborted();
        if (cause instanceof BelayError) throw cause;
        if (!safe(request) || wait > left()) throw unanswered(request, cause);
      }
      await pause(wait, request.signal);
    }
  };
}

/** isSafe reports whether a request may be sent again without doing something twice. */
export function isSafe(r: Request): boolean {
  return r.method !== "POST" || r.headers.has("Idempotency-Key");
}

/**
 * carry carries a request out within a time, and reads the answer, unless it is a stream. It leaves the request as it
 * is, to be sent again.
 */
async function carry(fetch: Fetch, request: Request, p: Patience): Promise<Response> {
  const time = linked(request.signal, p.tryMs);
  let streams = false;
  try {
    const response = await send(fetch, new Request(request.clone(), { signal: time.signal, redirect: "manual" }));
    streams = isStream(response);
    if (streams) return response;
    const body = await read(response, p.maxAnswerBytes);
    const { status, statusText, headers } = response;
    return new Response(body.length > 0 ? body : null, { status, statusText, headers });
  } finally {
    if (streams) time.stop();
    else time.release();
  }
}

/**
 * In Node a request can no longer be aborted when its Request has been garbage collected. These maps keep it: as long
 * as there is no answer, and then as long as the body of the answer.
 */
const sent = new Set<Request>();
const answered = new WeakMap<ReadableStream, Request>();

/**
 * send carries a request out whose redirect is "manual", and refuses to follow a redirect: the request has the key and
 * may have the secret of a lease, which no other server may get.
 */
export async function send(fetch: Fetch, request: Request): Promise<Response> {
  sent.add(request);
  const response = await fetch(request).finally(() => sent.delete(request));
  if (response.body) answered.set(response.body, request);
  const { status } = response;
  if (response.type !== "opaqueredirect" && !(status > 300 && status < 400 && status !== 304)) return response;
  await response.body?.cancel();
  throw invalid("the answer is a redirect, which the client does not follow: give the server's own address");
}

/** isStream reports whether an answer is a stream of server-sent events. */
export function isStream(response: Response): boolean {
  return response.ok && /^text\/event-stream\b/i.test(response.headers.get("Content-Type") ?? "");
}

/** read reads the body of an answer, and refuses one with more than most bytes. */
export async function read(response: Response, most: number): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done) break;
    size += value.length;
    if (size > most) {
      await reader?.cancel().catch(() => undefined);
      throw new BelayError("payload_too_large", `the answer has more than ${most} bytes`, { status: response.status });
    }
    pieces.push(value);
  }
  const all = new Uint8Array(size);
  for (const piece of pieces.reverse()) all.set(piece, (size -= piece.length));
  return all;
}

/** readJSON reads the body of a refusal; undefined if it is no JSON. */
export async function readJSON(response: Response, most: number): Promise<unknown> {
  const body = await read(response, most);
  try {
    return JSON.parse(new TextDecoder().decode(body)) as unknown;
  } catch {
    return undefined;
  }
}

function unanswered(request: Request, cause: unknown): BelayError {
  const path = new URL(request.url).pathname.replace(/ls_[0-9a-z]+/, "ls_…");
  const known = request.method === "GET" ? "" : "; the server may have carried the request out or not";
  return new BelayError("unavailable", `${request.method} ${path} got no answer${known}${hint()}`, { cause });
}

/** hint names the reason for which browsers most often keep an answer from a page. */
function hint(): string {
  const page = (globalThis as { location?: { origin?: string } }).location?.origin;
  return page === undefined || page === "null" ? "" : `; does the server's setting origins list ${page}?`;
}
