import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { start } from "./kit.js";

test("an execution is read with its submitter, its trigger payload, its newest action and its metrics", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const payload = { ref: "main", commits: [1, 2] };
  const { id, created_by } = await belay.submit("invoice", { actor: "ann", trigger_payload: payload });
  assert.equal(created_by, "ann");
  const lock = await belay.lock(id, { owner: "a script" });
  await lock.save({ n: 1 });
  const running = await belay.get(id);
  assert.deepEqual(running.trigger_payload, payload);
  assert.equal(running.metrics?.runs, 1);
  assert.ok(running.metrics.running_since);
  assert.equal(running.modified_at, undefined);
  await belay.pause(id, { actor: "bob" });
  assert.equal((await belay.get(id)).modified_by, "bob");
  await belay.resume(id, { actor: "cyd" });
  await lock.complete({ total: 17 });
  const { metrics, modified_by } = await belay.get(id);
  assert.equal(modified_by, "cyd");
  assert.deepEqual([metrics?.outcomes, metrics?.checkpoints, metrics?.children], [{ succeeded: 1 }, 1, undefined]);
  assert.ok(metrics?.duration_ms && metrics.wait_ms && metrics.running_ms);
  assert.ok((await belay.runs()).runs[0]?.duration_ms);
  const [listed] = (await belay.list()).executions;
  assert.equal(listed?.created_by, "ann");
  assert.ok(listed && !("trigger_payload" in listed) && !("metrics" in listed));
});

test("a trigger payload of more than 64 KiB is refused", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const large = belay.submit("invoice", { trigger_payload: "x".repeat(64 * 1024) });
  await assert.rejects(large, (e) => e instanceof BelayError && e.code === "payload_too_large");
});
