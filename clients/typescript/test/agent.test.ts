import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, spoken, type JobEnd } from "belay-client";
import { json, stream } from "./answers.js";
import { shared, stub } from "./kit.js";

test("a job runs, its log is followed, and its result is read", async () => {
  const belay = new Belay({ url: await shared() });
  const options = { idempotencyKey: "hello-1", metadata: { from: "test" }, budget: { cost: 12.5 } };
  const id = await belay.jobs.execute("say hello", options);
  assert.equal(await belay.jobs.execute("say hello", options), id);
  assert.deepEqual((await belay.get(id)).budget, { cost: 12.5 });
  const log = belay.jobs.log(id);
  let text = "";
  let end: JobEnd | undefined;
  while (end === undefined) {
    const next = await log.next();
    if (next.done) end = next.value;
    else if (next.value.event === "output") text += next.value.text;
  }
  assert.deepEqual([text, end.status, end.exit_code], ["say hello\n", "completed", 0]);
  const job = await belay.jobs.result(id);
  assert.deepEqual([job.result, job.metadata], ["say hello\n", { from: "test" }]);
  assert.equal((await belay.jobs.get(id)).status, "completed");
  await assert.rejects(belay.jobs.cancel(id), (e) => e instanceof BelayError && e.code === "conflict");
});

test("a chat is answered as a whole, and in pieces", async () => {
  const belay = new Belay({ url: await shared() });
  assert.match(spoken(await belay.chat("say hello")), /hello/);
  let text = "";
  for await (const piece of belay.chatStream({ messages: [{ role: "user", content: "say more" }] }))
    text += spoken(piece);
  assert.match(text, /say more/);
  const wrong = (e: unknown) => e instanceof BelayError && e.code === "invalid" && /needs a message/.test(e.message);
  await assert.rejects(belay.chat({ messages: [] }), wrong);
  await assert.rejects(belay.chatStream({ messages: [] }).next(), wrong);
});

test("a chat that is cut off, or fails within its stream, throws", async (t) => {
  const piece = `data: ${JSON.stringify({ choices: [{ delta: { content: "he" } }] })}\n\n`;
  const fault = `data: ${JSON.stringify({ error: { message: "the agent failed", type: "server_error", code: "unavailable", param: null } })}\n\n`;
  for (const [body, message] of [
    [[piece], /cut off/],
    [[piece, fault], /the agent failed/],
  ] as const) {
    const s = await stub(t, stream(...body));
    const pieces = new Belay({ url: s.url }).chatStream("hi");
    assert.equal(spoken((await pieces.next()).value!), "he");
    await assert.rejects(
      pieces.next(),
      (e) => e instanceof BelayError && e.code === "unavailable" && message.test(e.message),
    );
    assert.equal((await s.seen()).length, 1);
  }
});

test("a chat without a key is not repeated, and a chat with one is", async (t) => {
  const done = json(200, { choices: [{ message: { content: "hello" } }] });
  const s = await stub(t, { status: 0 }, done);
  await assert.rejects(
    new Belay({ url: s.url }).chat("hi"),
    (e) => e instanceof BelayError && e.code === "unavailable",
  );
  assert.equal((await s.seen()).length, 1);
  const keyed = await stub(t, { status: 0 }, done);
  assert.equal(spoken(await new Belay({ url: keyed.url }).chat("hi", { idempotencyKey: "k" })), "hello");
  assert.equal((await keyed.seen()).length, 2);
});
