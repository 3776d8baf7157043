/**
 * Answer is one answer of a stub server. It is data, so that a page in a browser can send it to the program that runs
 * the stub.
 */
export interface Answer {
  /** 0 breaks the connection off without an answer. */
  status: number;
  headers?: Record<string, string>;
  /** The pieces in which the body is written. */
  body?: string[];
  /** The thing that follows the body: its end, a broken connection, silence, or the last piece again and again. */
  then?: "end" | "cut" | "hold" | "repeat";
}

/** Seen is a request that a stub server got. */
export interface Seen {
  /** As in "GET /v1/…". */
  line: string;
  headers: Record<string, string | undefined>;
  body: string;
}

/** Stub is a server whose answers a test decides. */
export interface Stub {
  url: string;
  /** The requests so far. */
  seen(): Promise<Seen[]>;
  /** Waits until clients have closed so many connections. */
  closed(n: number): Promise<void>;
}

/** Server is a real belay serve. */
export interface Server {
  url: string;
  /** Ends the process as a crash does. */
  kill(): Promise<void>;
  /** Starts the process again, and waits until it accepts work. */
  up(): Promise<void>;
}

/** json is an answer with a body. */
export function json(status: number, body: unknown, headers: Record<string, string> = {}): Answer {
  const type = status >= 400 ? "application/problem+json" : "application/json";
  return { status, headers: { "Content-Type": type, ...headers }, body: [JSON.stringify(body)] };
}

/** problem is a refusal. */
export function problem(status: number, code: string, more: object = {}, headers: Record<string, string> = {}): Answer {
  return json(
    status,
    { type: `urn:belay:error:${code}`, title: "No", status, code, detail: "not so", ...more },
    headers,
  );
}

/** stream is an answer of server-sent events that is written in pieces, and then breaks off. */
export function stream(...body: string[]): Answer {
  return { status: 200, headers: { "Content-Type": "text/event-stream" }, body, then: "cut" };
}

/** cut breaks the connection off without an answer. */
export const cut: Answer = { status: 0 };

/** event is one event as the server writes it. */
export const event = (seq: number, kind = "step"): string =>
  `event: event\nid: ${seq}\ndata: {"execution":"ex_1","seq":${seq},"kind":"${kind}","at":"2026-11-20T12:00:00Z"}\n\n`;

export const end = (seq: number): string => `event: end\ndata: {"state":"succeeded","seq":${seq}}\n\n`;

/** execution is an execution as the server writes it. */
export const execution = (state: string) => ({
  id: "ex_1",
  workflow: "w",
  queue: "default",
  state,
  seq: 2,
  token: 1,
  generation: 1,
  attempt: 1,
  created_at: "2026-11-20T12:00:00Z",
});
