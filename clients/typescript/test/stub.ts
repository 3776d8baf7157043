import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Answer, Seen, Stub } from "./answers.js";

/** StubServer gives answers in turn, the last one again and again. Pages of every origin may use it. */
export class StubServer implements Stub {
  readonly #answers: Answer[];
  readonly #seen: Seen[] = [];
  readonly #server: Server;
  #closed = 0;
  #onClosed = () => {};
  url = "";

  private constructor(answers: Answer[]) {
    this.#answers = answers;
    this.#server = createServer((req, res) => void this.#serve(req, res));
  }

  static async start(answers: Answer[]): Promise<StubServer> {
    const s = new StubServer(answers);
    s.#server.listen(0, "127.0.0.1");
    await once(s.#server, "listening");
    s.url = `http://127.0.0.1:${(s.#server.address() as AddressInfo).port}`;
    return s;
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  seen(): Promise<Seen[]> {
    return Promise.resolve(this.#seen);
  }

  closed(n: number): Promise<void> {
    return new Promise((resolve) => {
      this.#onClosed = () => void (this.#closed >= n && resolve());
      this.#onClosed();
    });
  }

  async #serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    res.setHeader("Access-Control-Allow-Origin", "*");
    res.setHeader("Access-Control-Expose-Headers", "Retry-After");
    // A browser itself sends a request again if it breaks on a connection that was used before.
    const close = () => res.setHeader("Connection", "close");
    if (req.method === "OPTIONS") {
      close();
      const names = req.headers["access-control-request-headers"] ?? "";
      res.writeHead(204, {
        "Access-Control-Allow-Headers": names,
        "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
      });
      res.end();
      return;
    }
    const a = this.#answers[Math.min(this.#seen.length, this.#answers.length - 1)]!;
    const seen = { line: `${req.method} ${req.url}`, headers: req.headers as Seen["headers"], body: "" };
    this.#seen.push(seen);
    req.setEncoding("utf8");
    for await (const piece of req) seen.body += piece as string;
    if (a.status === 0) {
      res.destroy();
      return;
    }
    res.on("close", () => {
      this.#closed++;
      this.#onClosed();
    });
    if (a.then !== "cut") close(); // Node takes a body for whole if its connection was to be closed
    // Without a length or chunks a broken connection looks like the end of the body.
    res.writeHead(a.status, a.body === undefined ? a.headers : { "Transfer-Encoding": "chunked", ...a.headers });
    res.flushHeaders();
    const write = (piece: string) => new Promise<unknown>((done) => (res.destroyed ? done(0) : res.write(piece, done)));
    for (const piece of a.body ?? []) await write(piece);
    switch (a.then ?? "end") {
      case "end":
        res.end();
        break;
      case "cut":
        // A browser drops the bytes that its page has not read when the connection breaks.
        await new Promise((resolve) => setTimeout(resolve, 100));
        res.destroy();
        break;
      case "repeat":
        while (!res.destroyed) await write(a.body!.at(-1)!);
    }
  }
}
