import type { components, operations } from "./schema.js";
import { follow, parse, type Source, type StreamOptions } from "./stream.js";

type Schemas = components["schemas"];

/** Status is the state of an execution in a snapshot. */
export type Status = Schemas["Status"];
/** StateChange is a change of an execution's state, with `matches`: whether the execution matches the query now. */
export type StateChange = Schemas["StatusChange"];

/** Why there is a snapshot; after all but `begin`, changes before it may be missing. */
export type SnapshotCause = Schemas["StatusSnapshot"]["cause"];

/** StateNews is a snapshot, which replaces everything before it, or a change. */
export type StateNews =
  | {
      readonly snapshot: readonly Status[];
      readonly cause: SnapshotCause;
      /** Older executions match too: they are reported only when their state changes. */
      readonly truncated: boolean;
      readonly change?: never;
    }
  | { readonly change: StateChange; readonly snapshot?: never; readonly cause?: never; readonly truncated?: never };

type Query = NonNullable<operations["followStates"]["parameters"]["query"]>;

/** Which executions follow reports; by default all roots that have not ended. */
export type StateQuery = Omit<Query, "after" | "label"> & {
  /** Only executions that have all of these labels. */
  labels?: Readonly<Record<string, string>>;
};

/**
 * followStates yields the states of the executions that match a query: a snapshot, then every change of state of an
 * execution that matches before or after the change, in order of seq for each execution. If a connection breaks, it
 * continues after the last change; if changes may be missing, it yields another snapshot. It ends only when the caller
 * leaves it or the signal aborts.
 */
export async function* followStates(
  source: Source,
  query: StateQuery = {},
  o: StreamOptions = {},
): AsyncGenerator<StateNews, void, undefined> {
  let parts: Status[] | undefined; // of a snapshot whose last part has not come
  for await (const m of follow(source, { ...o, path: `/v1/executions/events${search(query)}` })) {
    if (m.event === "change") yield { change: parse<StateChange>(m) };
    if (m.event !== "snapshot") continue;
    const s = parse<Schemas["StatusSnapshot"]>(m);
    if (s.first) parts = [];
    if (parts === undefined) continue;
    parts.push(...s.executions);
    if (!s.last) continue;
    const news = { snapshot: parts, cause: s.cause, truncated: s.truncated ?? false };
    parts = undefined;
    yield news;
  }
}

function search(query: StateQuery): string {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (name === "labels" || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) all.append(name, String(one));
  }
  for (const [name, value] of Object.entries(query.labels ?? {})) all.append("label", `${name}=${value}`);
  const text = all.toString();
  return text === "" ? "" : `?${text}`;
}
