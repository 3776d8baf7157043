import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { json } from "./answers.js";
import { start, stub } from "./kit.js";

test("a target of notifications is put, tested, read, paused, resumed and removed", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  // The server has no rule for the secret, so the delivery of the test fails at once.
  const terms = { url: "${{ secrets.NO_SUCH_URL }}", format: "slack" as const, alerts: ["dead_letter" as const] };
  const put = await belay.notifications.put("ops", terms, { if: { none: true }, actor: "ann" });
  assert.equal(put.version, 1);
  assert.equal(put.updated_by, "ann");
  const conflict = (e: unknown) => e instanceof BelayError && e.status === 412;
  await assert.rejects(belay.notifications.put("ops", terms, { if: { version: 7 } }), conflict);
  await assert.rejects(belay.notifications.put("ops", terms, { if: { none: true } }), conflict);
  assert.deepEqual((await belay.notifications.list()).map((x) => [x.name, x.alerts]), [["ops", ["dead_letter"]]]);
  const delivery = await belay.result(await belay.notifications.test("ops", { actor: "bob" }));
  assert.equal(delivery.state, "failed");
  assert.match(delivery.error?.message ?? "", /NO_SUCH_URL/);
  assert.equal(delivery.created_by, "bob");
  assert.deepEqual(delivery.labels, { notification_target: "ops" });
  assert.equal((await belay.notifications.pause("ops", { reason: "why" })).paused?.reason, "why");
  assert.equal((await belay.notifications.get("ops")).version, 2);
  assert.equal((await belay.notifications.resume("ops")).paused, undefined);
  const changed = await belay.notifications.put("ops", { ...terms, workflows: ["billing-*"] }, { if: { version: 3 } });
  assert.deepEqual(changed.workflows, ["billing-*"]);
  await belay.notifications.remove("ops", { reason: "done" });
  await assert.rejects(belay.notifications.get("ops"), (e) => e instanceof BelayError && e.status === 404);
});

test("a test whose answer is lost is sent again with the same key", async (t) => {
  const s = await stub(t, { status: 0 }, json(200, { execution: "ex_01m8dzbp6chfgskqxv7p9ejfwf" }));
  const { notifications } = new Belay({ url: s.url });
  assert.equal(await notifications.test("ops"), "ex_01m8dzbp6chfgskqxv7p9ejfwf");
  const seen = await s.seen();
  assert.deepEqual(seen.map((r) => r.line), Array(2).fill("POST /v1/notification-targets/ops/test"));
  assert.equal(new Set(seen.map((r) => r.headers["idempotency-key"])).size, 1);
  assert.ok(seen[0]!.headers["idempotency-key"]);
});
