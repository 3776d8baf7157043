import { ofProblem, refusal, type BelayError } from "./error.js";
import { follow, parse, type Source, type StreamOptions } from "./stream.js";
import type { components } from "./schema.js";
import { backoff, pause } from "./time.js";
import type { Execution } from "./watch.js";

/** The end of one of several executions, or the reason why the server cannot wait for it. */
export type Ended =
  | { readonly id: string; readonly execution: Execution; readonly error?: never }
  | { readonly id: string; readonly error: BelayError; readonly execution?: never };

/** The most executions for which one request waits. */
const mostAwaited = 1000;
/** How long one request waits, and how long if there are more executions than it has room for. */
const longWaitMs = 60_000;
const shortWaitMs = 1_000;

/**
 * awaitMany yields each execution once, when it has ended. A request waits for a thousand of them; if there are more,
 * the requests take turns of a second.
 */
export async function* awaitMany(
  source: Source,
  ids: Iterable<string>,
  o: StreamOptions = {},
): AsyncGenerator<Ended, void, undefined> {
  const open = new Set(ids);
  let refused = 0; // rounds in a row in which the server was too busy for one of them
  while (open.size > 0) {
    o.signal?.throwIfAborted();
    const some = [...open].slice(0, mostAwaited);
    const wait_ms = open.size > some.length ? shortWaitMs : longWaitMs;
    const body = () => ({ executions: some.filter((id) => open.has(id)), wait_ms });
    let busy = false;
    for await (const m of follow(source, { ...o, path: "/v1/await", body })) {
      if (m.event === "over") break;
      const ended = read(m);
      if (ended === undefined || !open.has(ended.id)) continue;
      if (ended.error?.code === "unavailable" || ended.error?.code === "rate_limited") {
        busy = true;
        continue;
      }
      open.delete(ended.id);
      yield ended;
      if (!some.some((id) => open.has(id))) break;
    }
    for (const id of some) if (open.delete(id)) open.add(id); // they wait behind the others
    refused = busy ? refused + 1 : 0;
    if (busy) await pause(backoff(refused), o.signal);
  }
}

function read(m: Parameters<typeof parse>[0]): Ended | undefined {
  switch (m.event) {
    case "ended": {
      const execution = parse<Execution>(m);
      return { id: execution.id, execution };
    }
    case "refused": {
      const { execution, error } = parse<components["schemas"]["Refused"]>(m);
      return { id: execution, error: error ? ofProblem(error) : refusal(new Response(null, { status: 500 }), error) };
    }
    default:
      return undefined;
  }
}
