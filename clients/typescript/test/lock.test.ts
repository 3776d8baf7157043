import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, LeaseLost } from "belay-client";
import { cut, execution, json } from "./answers.js";
import { stub } from "./kit.js";

function locked(expires_in_ms: number) {
  const lease = { lock_id: "ls_1", token: 1, expires_in_ms, heartbeat_interval_ms: expires_in_ms / 3 };
  return json(201, { execution: execution("running"), checkpoint: null, lease });
}

test("an owner whose heartbeats get no answer stops before another owner may get the execution", async (t) => {
  const s = await stub(t, locked(600), cut);
  const asked = performance.now();
  const lock = await new Belay({ url: s.url }).lock("ex_1", { owner: "ann" });
  const alive = lock.keepAlive();
  const lost = new Promise<number>((resolve) =>
    lock.signal.addEventListener("abort", () => resolve(performance.now() - asked)),
  );
  const after = await lost;
  assert.ok(after >= 390 && after < 5_000, `stopped after ${after} ms of 600`);
  assert.ok(lock.signal.reason instanceof LeaseLost && lock.signal.reason.because === "expired");
  assert.throws(() => lock.guard(), LeaseLost);
  await alive;
  const before = (await s.seen()).length;
  await assert.rejects(lock.save({ late: true }), LeaseLost);
  assert.equal((await s.seen()).length, before, "a write was sent under a lost lock");
});

test("a lock without heartbeats is not used after two thirds of its TTL", async (t) => {
  const s = await stub(t, locked(30));
  const lock = await new Belay({ url: s.url }).lock("ex_1", { owner: "ann" });
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.throws(() => lock.guard(), LeaseLost);
  assert.equal((await s.seen()).length, 1);
});
