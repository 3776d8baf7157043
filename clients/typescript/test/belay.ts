import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Server } from "./answers.js";

/** The origin of the page that runs the tests in a browser. */
export const pageOrigin = (port: number): string => `http://page.belay.test:${port}`;

/** BelayServer is a real belay serve with a data directory of its own. Its agent repeats each prompt. */
export class BelayServer implements Server {
  #process: ChildProcess | undefined;
  #stderr = "";

  private constructor(
    readonly url: string,
    readonly data: string,
    private readonly listen: string,
    private readonly origin: string,
  ) {}

  /** start starts a server. The environment variable BELAY names the binary. */
  static async start(origin = pageOrigin(8080)): Promise<BelayServer> {
    const data = mkdtempSync(join(tmpdir(), "belay-ts-"));
    const address = `127.0.0.1:${await freePort()}`;
    const s = new BelayServer(`http://${address}`, data, address, origin);
    await s.up();
    return s;
  }

  async up(): Promise<void> {
    const binary = process.env["BELAY"];
    if (!binary) throw new Error("the environment variable BELAY must name the belay to test against");
    const env = { ...process.env, BELAY_ORIGINS: this.origin, BELAY_AGENT_COMMAND: '["echo","{{prompt}}"]' };
    const args = ["serve", "--listen", this.listen, "--data", this.data];
    this.#process = spawn(binary, args, { env, stdio: ["ignore", "ignore", "pipe"] });
    this.#process.stderr!.on("data", (b: Buffer) => (this.#stderr += b.toString()));
    const until = performance.now() + 60_000;
    for (;;) {
      const ready = await fetch(`${this.url}/readyz`).then(
        (r) => r.ok,
        () => false,
      );
      if (ready) return;
      if (this.#process.exitCode !== null || performance.now() > until) {
        throw new Error(`belay serve does not start: ${this.#stderr}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async kill(): Promise<void> {
    const p = this.#process;
    if (p === undefined || p.exitCode !== null || p.signalCode !== null) return;
    const gone = once(p, "exit");
    p.kill("SIGKILL");
    await gone;
  }

  /** remove ends the server and removes its data. */
  async remove(): Promise<void> {
    await this.kill();
    rmSync(this.data, { recursive: true, maxRetries: 5 });
  }
}

async function freePort(): Promise<number> {
  const s = createServer().listen(0, "127.0.0.1");
  await once(s, "listening");
  const { port } = s.address() as AddressInfo;
  s.close();
  await once(s, "close");
  return port;
}
