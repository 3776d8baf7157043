import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { Belay } from "belay-client";
import { shared } from "./kit.js";

test("a worker is killed with kill -9, and another continues after the last saved step", async (t) => {
  const url = await shared();
  const belay = new Belay({ url });
  const victim = join(dirname(process.argv[1]!), "victim.js");
  const begin = (name: string) => {
    const p = spawn(process.execPath, [victim, url, "killed", name], { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => void p.kill("SIGKILL"));
    const lines: string[] = [];
    const out = createInterface(p.stdout);
    out.on("line", (line) => lines.push(line));
    return { p, lines, out };
  };
  const { id } = await belay.submit("long", { queue: "killed", input: { steps: 5 } });
  const first = begin("first");
  const saved = new Set<string>();
  for await (const e of belay.watch(id)) {
    if (e.kind === "step") saved.add(e.name!);
    if (saved.has("step 3")) break;
  }
  first.p.kill("SIGKILL");
  const second = begin("second");
  const done = await belay.result(id);
  const { by, token } = done.output as { by: string; token: number };
  assert.ok(done.state === "succeeded" && by === "second" && token > 1, JSON.stringify(done));
  assert.equal(first.lines.at(-1), "step 3");
  assert.deepEqual(second.lines, [`run ${token}`, "step 4", "step 5"]);
});
