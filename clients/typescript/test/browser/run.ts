// Runs the tests in Chromium: node run.js, with the environment variables BELAY and, if it is not in PATH, CHROMIUM. It
// serves a page that runs them, starts the servers that they ask for, and prints the outcomes. The page has an origin
// without HTTPS and other than the servers', as the pages of an application in a company's network do.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve, sep } from "node:path";
import type { Answer } from "../answers.js";
import { BelayServer, pageOrigin } from "../belay.js";
import { StubServer } from "../stub.js";

const script = resolve(process.argv[1]!);
const tests = dirname(dirname(script));
const require = createRequire(script);
const modules: Record<string, string> = {
  "/tests/": tests,
  "/belay-client/": dirname(require.resolve("belay-client/package.json")),
  "/openapi-fetch/": dirname(require.resolve("openapi-fetch")),
};
const imports = {
  "belay-client": "/belay-client/dist/esm/index.js",
  "openapi-fetch": "/openapi-fetch/index.mjs",
  "node:test": "/tests/browser/test.js",
  "node:assert/strict": "/tests/browser/assert.js",
  "/tests/kit.js": "/tests/browser/kit.js",
};
const html = `<!doctype html><title>belay-client</title>
<script type="importmap">${JSON.stringify({ imports })}</script>
<script type="module" src="/tests/browser/page.js"></script>`;
/** These tests need processes, files or modules of Node. */
const nodeOnly = /^(worker|repair|target|kill|copies|collected|readme)\./;
const patienceMs = 40_000;

interface Request {
  op: string;
  id: number;
  n: number;
  answers: Answer[];
  name: string;
  error?: string;
  secure: boolean;
}

const open = new Set<string>(); // the tests that have begun and not ended
let passed = 0;
let failed = 0;
const servers: (StubServer | BelayServer)[] = [];
let shared: Promise<BelayServer> | undefined;
let finish: (r: Request) => void;
const finished = new Promise<Request>((resolve) => (finish = resolve));

async function control(r: Request): Promise<unknown> {
  const server = servers[r.id];
  switch (r.op) {
    case "files":
      return {
        files: readdirSync(tests)
          .filter((f) => f.endsWith(".test.js") && !nodeOnly.test(f))
          .map((f) => `/tests/${f}`),
      };
    case "stub":
      return add(await StubServer.start(r.answers));
    case "start":
      return add(await BelayServer.start(origin));
    case "shared":
      return { url: (await (shared ??= BelayServer.start(origin))).url };
    case "begun":
      open.add(r.name);
      return {};
    case "over":
      open.delete(r.name);
      console.log(r.error === undefined ? `ok - ${r.name}` : `not ok - ${r.name}\n${r.error}`);
      if (r.error === undefined) passed++;
      else failed++;
      return {};
    case "done":
      finish(r);
      return {};
  }
  if (server instanceof StubServer) {
    if (r.op === "seen") return server.seen();
    if (r.op === "closed") await server.closed(r.n);
    if (r.op === "stop") server.stop();
  } else if (server instanceof BelayServer) {
    if (r.op === "kill") await server.kill();
    if (r.op === "up") await server.up();
    if (r.op === "stop") await server.remove();
  }
  return {};
}

function add(server: StubServer | BelayServer): { id: number; url: string } {
  return { id: servers.push(server) - 1, url: server.url };
}

async function serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const path = new URL(req.url!, "http://page").pathname;
  if (req.method === "POST" && path === "/control") {
    let body = "";
    for await (const piece of req) body += String(piece);
    res.setHeader("Content-Type", "application/json").end(JSON.stringify(await control(JSON.parse(body) as Request)));
    return;
  }
  if (path === "/") {
    res.setHeader("Content-Type", "text/html").end(html);
    return;
  }
  const prefix = Object.keys(modules).find((p) => path.startsWith(p));
  const file = prefix === undefined ? "" : resolve(modules[prefix]!, path.slice(prefix.length));
  const allowed =
    prefix !== undefined && file.startsWith(modules[prefix]! + sep) && /\.m?js$/.test(file) && existsSync(file);
  if (!allowed) {
    res.writeHead(404).end();
    return;
  }
  res.setHeader("Content-Type", "text/javascript").end(readFileSync(file));
}

const http = createServer((req, res) => {
  serve(req, res).catch((err: unknown) => res.writeHead(500).end(String(err)));
});
http.listen(0, "127.0.0.1");
await once(http, "listening");
const origin = pageOrigin((http.address() as AddressInfo).port);

const profile = mkdtempSync(join(tmpdir(), "belay-chromium-"));
const args = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--disable-extensions",
  "--disable-background-timer-throttling",
  "--disable-renderer-backgrounding",
  "--disable-backgrounding-occluded-windows",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-default-browser-check",
  "--host-resolver-rules=MAP page.belay.test 127.0.0.1",
  "--no-proxy-server",
  `--user-data-dir=${profile}`,
  // A page without HTTPS is what the tests want; newer versions would ask the user first.
  "--disable-features=HttpsUpgrades,HttpsFirstBalancedMode,HttpsFirstBalancedModeAutoEnable,HttpsFirstModeV2",
  "--enable-logging=stderr",
  `${origin}/`,
];
const browser = spawn(process.env["CHROMIUM"] || "chromium", args, {
  stdio: ["ignore", "ignore", "pipe"],
  detached: true,
});
let log = "";
browser.stderr!.on("data", (b: Buffer) => (log = (log + b.toString()).slice(-8_000)));

const ended = Promise.race([
  finished,
  once(browser, "exit").then(() => Promise.reject(new Error("the browser ended"))),
  new Promise<never>((_, reject) =>
    setTimeout(() => reject(new Error(`no outcome within ${patienceMs} ms`)), patienceMs).unref(),
  ),
]);
try {
  const { secure } = await ended;
  if (secure) console.log("the page was loaded from a secure origin; the tests are meant for one that is not");
  console.log(`# pass ${passed}\n# fail ${failed}`);
  process.exitCode = failed > 0 || secure || passed === 0 ? 1 : 0;
} catch (err) {
  console.error(err, { open: [...open] }, log);
  process.exitCode = 1;
} finally {
  try {
    process.kill(-browser.pid!, "SIGKILL"); // with its helper processes
  } catch {
    // it has ended
  }
  for (const s of servers) if (s instanceof BelayServer) await s.remove().catch(() => undefined);
  await (await shared)?.remove();
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  process.exit();
}
