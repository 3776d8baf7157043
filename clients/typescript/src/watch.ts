import { invalid } from "./error.js";
import { segment } from "./path.js";
import type { components } from "./schema.js";
import { follow, parse, type Source, type StreamOptions } from "./stream.js";

/** Event is a transition of an execution. */
export type Event = components["schemas"]["Event"];
export type Execution = components["schemas"]["Execution"];
/** ExecutionDetail is an execution with the facts that lists leave out. */
export type ExecutionDetail = components["schemas"]["ExecutionDetail"];

/** The end of an execution, which is the end of its stream of events. */
export interface End {
  readonly state: Execution["state"];
  readonly seq: number;
}

export interface WatchOptions extends StreamOptions {
  /** Only events after this seq; all events by default. */
  after?: number;
  /** The data of checkpoints and signals too. */
  data?: boolean;
  /** Gets the execution whenever the stream is opened: the first time, and after a broken connection. */
  onSnapshot?: (execution: Execution) => void;
}

/**
 * watch yields the events of an execution in order of seq, each once and without a gap, until the execution has ended;
 * the generator's return value is the end. If a connection breaks, or is silent for too long, watch opens another one
 * after the last event that it has yielded. read reads the execution.
 */
export async function* watch(
  source: Source,
  id: string,
  read: (signal?: AbortSignal) => Promise<Execution>,
  o: WatchOptions = {},
): AsyncGenerator<Event, End, undefined> {
  let last = o.after ?? 0;
  if (!Number.isSafeInteger(last) || last < 0) throw invalid(`after must be the seq of an event, not ${last}`);
  const path = `/v1/executions/${segment(id)}/events${o.data ? "?data=true" : ""}`;
  for await (const m of follow(source, { ...o, path, last: last > 0 ? String(last) : undefined })) {
    if (m.event === "end") return parse<End>(m);
    if (m.event === "snapshot") o.onSnapshot?.(parse<Execution>(m));
    if (m.event !== "event") continue;
    const event = parse<Event>(m);
    if (event.seq <= last) continue;
    last = event.seq;
    yield event;
  }
  // The stream broke between the last event and the end, and the server had nothing to add.
  const x = await read(o.signal);
  o.onSnapshot?.(x);
  return { state: x.state, seq: x.seq };
}
