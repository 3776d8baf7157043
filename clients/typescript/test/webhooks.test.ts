import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { json, problem } from "./answers.js";
import { start, stub } from "./kit.js";

test("a webhook is put, tested, read, replayed, paused, resumed and removed", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const terms = {
    scheme: "github" as const, secrets: ["${{ secrets.HOOK }}"], filter: 'event.type == "push"',
    execution: { workflow: "build", input: { commit: "${{ event.data.after }}" } },
  };
  const put = await belay.webhooks.put("pushes", terms, { if: { none: true }, actor: "ann" });
  assert.equal(put.version, 1);
  await assert.rejects(belay.webhooks.put("pushes", terms, { if: { version: 7 } }), (e) => e instanceof BelayError);
  assert.deepEqual((await belay.webhooks.list()).webhooks.map((h) => h.name), ["pushes"]);
  const delivery = { id: "a/1", type: "push", data: { after: "3f2a" } };
  const first = await belay.webhooks.test("pushes", delivery);
  assert.equal(first.outcome, "started");
  assert.equal((await belay.webhooks.test("pushes", delivery)).outcome, "duplicate");
  assert.equal((await belay.webhooks.test("pushes", { id: "2", data: 1 })).outcome, "filtered");
  const execution = await belay.get(first.execution!);
  assert.equal(execution.trigger, "webhook");
  assert.deepEqual(execution.input, { commit: "3f2a" });
  assert.deepEqual((await belay.webhooks.delivery("pushes", "a/1")).data, { after: "3f2a" });
  assert.equal((await belay.webhooks.replay("pushes", "a/1")).outcome, "started");
  assert.equal((await belay.webhooks.get("pushes")).recent?.length, 3);
  assert.equal((await belay.webhooks.pause("pushes", { reason: "why" })).paused?.reason, "why");
  assert.equal((await belay.webhooks.resume("pushes")).paused, undefined);
  await belay.webhooks.remove("pushes");
  await assert.rejects(belay.webhooks.get("pushes"), (e) => e instanceof BelayError && e.status === 404);
});

test("events start executions once", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  await belay.webhooks.put("ship", {
    scheme: "cloudevents", filter: 'event.headers["ce-region"] == "eu"', execution: { workflow: "ship" },
  });
  const event = { id: "1", source: "/shop", type: "order.paid", data: { n: 1 } };
  for (const outcome of ["started", "duplicate"]) {
    const results = await belay.webhooks.publish({ ...event, region: "eu" }, { ...event, id: "2" });
    assert.deepEqual(results.map((r) => r.deliveries.map((d) => d.outcome)), [[outcome], []]);
  }
  await assert.rejects(belay.webhooks.publish({ ...event, source: "" }), (e) => e instanceof BelayError && e.status === 422);
});

test("a webhook names a queue, and says how the server consumes it", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const put = await belay.webhooks.put("orders", {
    scheme: "amqp", amqp: { queue: "shop.orders", without_id: "hash" }, execution: { workflow: "ship" },
  });
  assert.deepEqual(put.amqp, { queue: "shop.orders", without_id: "hash" });
  const { consumer } = await belay.webhooks.get("orders");
  assert.equal(consumer?.consuming, false);
  assert.match(consumer?.text ?? "", /no broker/);
});

test("tests and events are sent again until they have an answer", async (t) => {
  const delivery = json(200, { id: "1", at: "2026-11-27T00:00:00Z", outcome: "duplicate", bytes: 1 });
  const published = json(200, { events: [] });
  const s = await stub(t, { status: 0 }, problem(503, "unavailable"), delivery, { status: 0 }, published);
  const { webhooks } = new Belay({ url: s.url });
  assert.equal((await webhooks.test("pushes", { id: "1", data: 1 })).outcome, "duplicate");
  assert.deepEqual(await webhooks.publish({ id: "1", source: "/shop", type: "paid" }), []);
  assert.deepEqual((await s.seen()).map((r) => r.line), [
    ...Array(3).fill("POST /v1/webhooks/pushes/deliveries"), ...Array(2).fill("POST /v1/cloudevents"),
  ]);
});
