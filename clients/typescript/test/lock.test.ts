import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, LeaseLost } from "../src/index.js";
import { cut, json, stub } from "./stub.js";

const execution = { id: "ex_1", workflow: "w", queue: "default", state: "running", seq: 2, token: 1, generation: 1, attempt: 1, created_at: "2026-11-20T12:00:00Z" };

function locked(expires_in_ms: number) {
  return json(201, { execution, checkpoint: null, lease: { lock_id: "ls_1", token: 1, expires_in_ms, heartbeat_interval_ms: expires_in_ms / 3 } });
}

test("an owner that hears nothing stops before somebody else may own the execution", async (t) => {
  const s = await stub(t, locked(600), cut);
  const asked = performance.now();
  const lock = await new Belay({ url: s.url }).lock("ex_1", { owner: "ann" });
  const alive = lock.keepAlive();
  const lost = new Promise<number>((resolve) => lock.signal.addEventListener("abort", () => resolve(performance.now() - asked)));
  const after = await lost;
  assert.ok(after >= 390 && after < 5_000, `given up after ${after} ms of 600`);
  assert.ok(lock.signal.reason instanceof LeaseLost && lock.signal.reason.because === "expired");
  assert.throws(() => lock.guard(), LeaseLost);
  await alive;
  const before = s.seen.length;
  assert.throws(() => void lock.save({ late: true }), LeaseLost);
  assert.equal(s.seen.length, before, "a write was sent under a lost lock");
});

test("a lock that cannot be told to hold is not used, awake or not", async (t) => {
  const s = await stub(t, locked(30));
  const lock = await new Belay({ url: s.url }).lock("ex_1", { owner: "ann" });
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.throws(() => lock.guard(), LeaseLost);
  assert.equal(s.seen.length, 1);
});
