import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

/** Stub is a server that a test decides the answers of. */
export interface Stub {
  url: string;
  /** The requests so far, as "GET /v1/…". */
  seen: string[];
  /** Their headers. */
  headers: IncomingMessage["headers"][];
}

/** stub serves answers in turn, the last one again and again. */
export async function stub(t: TestContext, ...answers: ((res: ServerResponse, req: IncomingMessage) => void)[]): Promise<Stub> {
  const s: Stub = { url: "", seen: [], headers: [] };
  const server = createServer((req, res) => {
    const answer = answers[Math.min(s.seen.length, answers.length - 1)]!;
    s.seen.push(`${req.method} ${req.url}`);
    s.headers.push(req.headers);
    req.resume().on("end", () => answer(res, req));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  s.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return s;
}

/** json answers with a body. */
export function json(status: number, body: unknown, headers: Record<string, string> = {}) {
  return (res: ServerResponse): void => {
    const type = status >= 400 ? "application/problem+json" : "application/json";
    res.writeHead(status, { "Content-Type": type, ...headers }).end(JSON.stringify(body));
  };
}

/** problem answers with a refusal. */
export function problem(status: number, code: string, more: object = {}, headers: Record<string, string> = {}) {
  return json(status, { type: `urn:belay:error:${code}`, title: "No", status, code, detail: "not so", ...more }, headers);
}

/** stream answers with server-sent events, written in the pieces given, and then breaks the connection off. */
export function stream(...pieces: string[]) {
  return async (res: ServerResponse): Promise<void> => {
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    for (const piece of pieces) await new Promise((done) => res.write(piece, done));
    res.destroy();
  };
}

/** cut breaks the connection off without an answer. */
export const cut = (res: ServerResponse): void => void res.destroy();

/** event is one event as the server writes it. */
export const event = (seq: number, kind = "step"): string =>
  `event: event\nid: ${seq}\ndata: {"execution":"ex_1","seq":${seq},"kind":"${kind}","at":"2026-11-20T12:00:00Z"}\n\n`;

export const end = (seq: number): string => `event: end\ndata: {"state":"succeeded","seq":${seq}}\n\n`;
