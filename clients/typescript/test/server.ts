import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

/** Server is a real belay serve with a data directory of its own. */
export class Server {
  #process: ChildProcess | undefined;
  #said = "";

  private constructor(
    readonly url: string,
    readonly data: string,
    private readonly listen: string,
  ) {}

  /** start starts a server for the length of a test. BELAY names the binary. */
  static async start(t: TestContext): Promise<Server> {
    const data = mkdtempSync(join(tmpdir(), "belay-ts-"));
    const address = `127.0.0.1:${await freePort()}`;
    const s = new Server(`http://${address}`, data, address);
    t.after(async () => {
      await s.kill();
      rmSync(data, { recursive: true });
    });
    await s.up();
    return s;
  }

  /** up starts the process and waits until it takes work. */
  async up(): Promise<void> {
    const binary = process.env["BELAY"];
    if (!binary) throw new Error("BELAY must name the belay to test against");
    this.#process = spawn(binary, ["serve", "--listen", this.listen, "--data", this.data], { stdio: ["ignore", "ignore", "pipe"] });
    this.#process.stderr!.on("data", (b: Buffer) => (this.#said += b.toString()));
    const until = performance.now() + 30_000;
    for (;;) {
      const ready = await fetch(`${this.url}/readyz`).then((r) => r.ok, () => false);
      if (ready) return;
      if (this.#process.exitCode !== null || performance.now() > until) throw new Error(`belay serve does not come up: ${this.#said}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** kill ends the process as a crash would. */
  async kill(): Promise<void> {
    const p = this.#process;
    if (p === undefined || p.exitCode !== null || p.signalCode !== null) return;
    const gone = once(p, "exit");
    p.kill("SIGKILL");
    await gone;
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
