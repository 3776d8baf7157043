import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { start } from "./kit.js";

test("a schedule is put, read, run, backfilled, paused, resumed and removed", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const terms = { cron: "0 2 * * *", time_zone: "Europe/Berlin", execution: { workflow: "nightly", input: { n: 1 } } };
  const put = await belay.schedules.put("nightly", terms, { if: { none: true }, actor: "ann" });
  assert.equal(put.version, 1);
  assert.equal(put.next?.length, 10);
  await assert.rejects(belay.schedules.put("nightly", terms, { if: { version: 7 } }), (e) => e instanceof BelayError);
  assert.deepEqual((await belay.schedules.list()).schedules.map((s) => s.name), ["nightly"]);
  const slot = await belay.schedules.run("nightly", { reason: "now" });
  assert.equal(slot.outcome, "started");
  const execution = await belay.get(slot.execution!);
  assert.equal(execution.trigger, "cron");
  assert.equal(execution.workflow, "nightly");
  const day = 24 * 3600 * 1000;
  const from = new Date(Date.now() - 3 * day);
  const to = new Date(Date.now() - 60_000);
  for (const outcome of ["started", "done"]) {
    const slots = await belay.schedules.backfill("nightly", from, to);
    assert.ok(slots.length >= 2 && slots.every((s) => s.outcome === outcome), JSON.stringify(slots));
  }
  assert.equal((await belay.schedules.pause("nightly", { reason: "why" })).paused?.reason, "why");
  assert.equal((await belay.schedules.resume("nightly")).paused, undefined);
  await belay.schedules.remove("nightly");
  await assert.rejects(belay.schedules.get("nightly"), (e) => e instanceof BelayError && e.status === 404);
});
