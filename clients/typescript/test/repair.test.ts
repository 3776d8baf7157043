import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { Worker } from "belay-client/worker";
import { start } from "./kit.js";

const refused = (code: string, text: string) => (e: unknown) =>
  e instanceof BelayError && e.code === code && e.message.includes(text);

const consent = (payload: unknown): string => {
  if (payload instanceof Object && "by" in payload && typeof payload.by === "string") return payload.by;
  throw new Error("it names no person");
};

test("a wait that got a wrong payload asks again after a retry, and a saved answer is discarded", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const ran = { reserve: 0, ship: 0 };
  const worker = new Worker(belay);
  worker.register("order", async (_, run) => {
    await run.step("reserve", () => ++ran.reserve);
    const by = await run.waitSignal("approved", { timeoutMs: 86_400_000, parse: consent });
    await run.step("ship", () => ++ran.ship);
    return by;
  });
  const running = worker.run();
  t.after(async () => {
    worker.stop();
    await running;
  });
  const { id } = await belay.submit("order", { max_attempts: 1 });
  await belay.signal(id, "approved", "yes");
  const failed = await belay.result(id);
  assert.equal(failed.state, "failed");
  assert.match(failed.error!.message, /signal "approved": the payload has the wrong type: it names no person/);
  await belay.retry(id);
  await belay.signal(id, "approved", { by: "ann" });
  assert.equal((await belay.result(id)).output, "ann");
  assert.deepEqual(ran, { reserve: 1, ship: 1 });

  await assert.rejects(belay.retry(id, { from: "approved" }), refused("conflict", "only a failed"));
  await assert.rejects(belay.fork(id, { at: "pay" }), refused("invalid", '"reserve", "approved", "ship"'));
  const fork = await belay.fork(id, { at: "approved", reason: "ask bert" });
  assert.notEqual(fork.id, id);
  await belay.signal(fork.id, "approved", { by: "bert" });
  assert.equal((await belay.result(fork.id)).output, "bert");
  assert.deepEqual(ran, { reserve: 1, ship: 2 });

  const other = await belay.submit("order", { max_attempts: 1 });
  // A signal that arrives before the step is saved comes back when the step is discarded.
  while ((await belay.get(other.id)).state !== "waiting") await new Promise((done) => setTimeout(done, 20));
  await belay.signal(other.id, "approved", 17);
  await belay.result(other.id);
  await belay.retry(other.id, { from: "reserve" });
  await belay.signal(other.id, "approved", { by: "carl" });
  assert.equal((await belay.result(other.id)).output, "carl");
  assert.deepEqual(ran, { reserve: 3, ship: 3 });
});

test("the tasks of a document are listed, and a failed task is skipped with an output", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const document = `name: ask
tasks:
  - {id: nap, uses: sleep, with: {for: 1ms}}
  - {id: ask, uses: approval, needs: nap, with: {message: "ship it?"}}
output: "\${{ tasks.ask.output.by }}"
`;
  const sum = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(document));
  const hash = [...new Uint8Array(sum)].map((b) => b.toString(16).padStart(2, "0")).join("");
  const { id } = await belay.submit("document", { input: { document, hash } });
  const asks = async () => (await belay.tasks(id, { task: "ask" })).tasks[0]!;
  while ((await asks()).state !== "waiting") await new Promise((done) => setTimeout(done, 20));
  assert.deepEqual((await asks()).question, { signal: "ask", approval: true, message: "ship it?" });
  await assert.rejects(belay.repair(id, { from: ["nap"] }), refused("conflict", "cancel it first"));
  await belay.signal(id, "ask", { approved: false });
  assert.equal((await belay.result(id)).state, "failed");
  const page = await belay.tasks(id);
  assert.deepEqual([page.document, page.total], ["ask", 2]);
  assert.deepEqual(
    page.tasks.map((x) => x.state),
    ["succeeded", "failed"],
  );
  await assert.rejects(belay.repair(id, { from: ["nope"] }), refused("invalid", 'no task "nope"'));
  await belay.repair(id, { skip: [{ task: "ask", output: { by: "ann" } }], actor: "bert", reason: "by phone" });
  assert.equal((await belay.result(id)).output, "ann");
  assert.deepEqual((await asks()).by_hand, { by: "bert", note: "by phone" });
  const other = await belay.submit("other");
  await assert.rejects(belay.tasks(other.id), refused("invalid", "does not run a document"));
});

test("a spent budget pauses an execution, and a higher budget lets it continue", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const worker = new Worker(belay);
  worker.register("spend", async (_, run) => {
    await run.step("first", () => run.addCost(0.75));
    await run.sleep("rest", 300);
    await run.step("second", () => run.addCost(0.75));
    return 7;
  });
  const running = worker.run();
  t.after(async () => {
    worker.stop();
    await running;
  });
  const { id } = await belay.submit("spend", { budget: { cost: 0.5 } });
  const spent = async () => {
    const x = await belay.get(id);
    return x.state === "paused" && x.reason?.code === "budget";
  };
  while (!(await spent())) await new Promise((done) => setTimeout(done, 20));
  await assert.rejects(belay.resume(id), refused("conflict", "budget"));
  assert.equal((await belay.setBudget(id, 20)).budget?.cost, 20);
  const ended = await belay.result(id);
  assert.equal(ended.output, 7);
  assert.equal(ended.cost_tokens, 1.5);
});
