import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { start } from "./kit.js";

test("runs of all executions are listed by outcome, worker and time", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const before = new Date(Date.now() - 60_000).toISOString();
  const { id } = await belay.submit("invoice");
  const lock = await belay.lock(id, { owner: "a script" });
  const running = await belay.runs({ outcome: "running" });
  assert.deepEqual(
    running.runs.map((r) => [r.execution, r.workflow]),
    [[id, "invoice"]],
  );
  await lock.complete({ total: 17 });
  assert.deepEqual((await belay.runs({ outcome: "running" })).runs, []);
  const [run] = (await belay.runs({ outcome: "succeeded", since: before })).runs;
  assert.equal(run?.execution, id);
  assert.deepEqual((await belay.runs({ worker: run.worker, limit: 1 })).runs, [run]);
  assert.deepEqual((await belay.runs({ until: before })).runs, []);
  await assert.rejects(belay.runs({ since: "x" }), (e) => e instanceof BelayError && e.status === 400);
});
