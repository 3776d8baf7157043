import { BelayError, retryAfter } from "./error.js";

/** Fetch is what carries a request out: the global fetch, or one with a proxy. */
export type Fetch = (request: Request) => Promise<Response>;

/** How persistently a call that is safe to repeat is repeated. */
export interface Patience {
  /** For how long, in milliseconds, counted from the first try. */
  patienceMs: number;
  /** How long one try may take. It is longer than the longest wait that a request can ask for. */
  tryMs: number;
}

const leastPauseMs = 100;
const mostPauseMs = 2_000;

/**
 * patient carries requests out with fetch, and again if they came to nothing: no answer, 503, or 429, which was refused
 * before anything was done. What is not safe to repeat is not repeated after a failure of which nobody knows what it left.
 */
export function patient(fetch: Fetch, p: Patience, safe: (r: Request) => boolean = isSafe): Fetch {
  return async (request) => {
    const until = performance.now() + p.patienceMs;
    for (let tries = 0; ; tries++) {
      const left = () => until - performance.now();
      let wait = backoff(tries);
      try {
        const response = await once(fetch, request, p.tryMs);
        const again = response.status === 429 || (response.status === 503 && safe(request));
        if (!again) return response;
        wait = Math.max(retryAfter(response) ?? wait, leastPauseMs);
        if (wait > left()) return response;
        await response.body?.cancel();
      } catch (cause) {
        request.signal.throwIfAborted();
        if (!safe(request) || wait > left()) throw unanswered(request, cause);
      }
      await pause(wait, request.signal);
    }
  };
}

/** isSafe says whether a request may be sent again without doing something twice. */
export function isSafe(r: Request): boolean {
  return r.method !== "POST" || r.headers.has("Idempotency-Key");
}

/** once carries a request out within a time. It leaves the request as it is, to be sent again. */
function once(fetch: Fetch, request: Request, ms: number): Promise<Response> {
  const signal = AbortSignal.any([request.signal, AbortSignal.timeout(ms)]);
  return fetch(new Request(request.clone(), { signal }));
}

function unanswered(request: Request, cause: unknown): BelayError {
  const path = new URL(request.url).pathname.replace(/ls_[0-9a-z]+/, "ls_…");
  const known = isSafe(request) && request.method === "GET" ? "" : "; nobody knows whether it was carried out";
  return new BelayError("unavailable", `${request.method} ${path} got no answer${known}`, { cause });
}

/** backoff is how long to wait before the next try: doubling, with jitter. */
export function backoff(tries: number): number {
  const most = Math.min(mostPauseMs, leastPauseMs * 2 ** tries);
  return most * (0.5 + Math.random() / 2);
}

/** pause waits, or throws as soon as the signal says so. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
