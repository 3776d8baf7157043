// The servers of the tests. In a browser, browser/kit.ts takes the place of this module.
import { after } from "node:test";
import type { Answer, Server, Stub } from "./answers.js";
import { BelayServer } from "./belay.js";
import { StubServer } from "./stub.js";

/** Test is the part of a test's context that the tests use. */
export interface Test {
  after(fn: () => void | Promise<void>): void;
}

/** stub starts a server with the answers. */
export async function stub(t: Test, ...answers: Answer[]): Promise<Stub> {
  const s = await StubServer.start(answers);
  t.after(() => s.stop());
  return s;
}

/** start starts a real server for one test. */
export async function start(t: Test): Promise<Server> {
  const s = await BelayServer.start();
  t.after(() => s.remove());
  return s;
}

let server: Promise<BelayServer> | undefined;

/** shared is the address of a real server for the tests that do not disturb each other. */
export async function shared(): Promise<string> {
  server ??= BelayServer.start();
  return (await server).url;
}

after(async () => (await server?.catch(() => undefined))?.remove());
