import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay } from "belay-client";
import { permanent, Worker, type Run } from "belay-client/worker";
import { shared, type Test } from "./kit.js";

const quiet = { warn: () => {}, error: () => {} };

/** Call is the body of a request about a target. */
interface Call {
  target: string;
  step: string;
  outcome?: string;
}

/** Seen changes or replaces the answer to a call. */
type Seen = (call: Call, go: () => Promise<Response>) => Promise<Response>;

/** working runs a worker for the length of a test. Its queue, and its workflow, have the name of the test. */
async function working(
  t: Test,
  name: string,
  fn: (input: never, run: Run) => unknown,
  seen: Seen = (_, go) => go(),
): Promise<Belay> {
  const fetch = async (request: Request): Promise<Response> => {
    if (!/^\/v1\/runs\/run_[^/]+\/target$/.test(new URL(request.url).pathname)) return globalThis.fetch(request);
    return seen((await request.clone().json()) as Call, () => globalThis.fetch(request));
  };
  const belay = new Belay({ url: await shared(), fetch });
  const worker = new Worker(belay, { queues: [name], graceMs: 5_000, log: quiet });
  worker.register(name, fn);
  const running = worker.run();
  running.catch(() => undefined);
  t.after(async () => {
    worker.stop();
    await running.catch(() => undefined);
  });
  return belay;
}

test("a step does not call a target whose breaker is open, and no attempt counts until it works", async (t) => {
  const calls: string[] = [];
  const belay = await working(t, "open", async (_, run) => {
    await run.step("before", () => void calls.push("before"));
    const slow = run.step("slow", () => new Promise<string>((resolve) => setTimeout(() => resolve("slow"), 300)));
    const charged = run.step("charge", () => calls.push("charge"), { target: "open:charge", attempts: 3 });
    return { slow: await slow, charged: await charged, attempt: run.attempt };
  });
  await belay.gates.setBreaker("open:charge", "open", { reason: "it is down" });
  const { id } = await belay.submit("open", { queue: "open", max_attempts: 1 });
  await until(async () => (await belay.gates.get("target:open:charge")).line.includes(id));
  const x = await belay.get(id);
  assert.deepEqual([x.state, x.attempt, x.checkpoints], ["pending", 1, 2]); // the other step has saved its result
  assert.match((await belay.explain(id)).summary, /open:charge/);
  assert.deepEqual(calls, ["before"]);
  await belay.gates.setBreaker("open:charge", "automatic");
  assert.deepEqual((await belay.result(id)).output, { slow: "slow", charged: 2, attempt: 1 });
  assert.deepEqual(calls, ["before", "charge"]);
});

test("failures of a target open its breaker, permanent errors do not", async (t) => {
  let failed = 0;
  const belay = await working(t, "failing", async (target: string, run) => {
    const fail = () => {
      failed++;
      throw target === "failing:down" ? new Error("it is down") : permanent("the card is refused");
    };
    await run.step("charge", fail, { target, attempts: 9, baseMs: 1 });
  });
  const refused = Array.from({ length: 6 }, () => ({ workflow: "failing", queue: "failing", input: "failing:card" }));
  const all = await belay.submitMany(refused);
  const ends = await belay.results(all.map((s) => s.id));
  assert.deepEqual(
    ends.map((x) => [x.state, x.error?.class, x.error?.message]),
    refused.map(() => ["failed", "permanent", "the card is refused"]),
  );
  assert.equal((await belay.gates.get("target:failing:card")).open, true);
  failed = 0;
  const { id } = await belay.submit("failing", { queue: "failing", input: "failing:down" });
  await until(async () => (await belay.gates.get("target:failing:down")).line.includes(id));
  const { breaker } = await belay.gates.get("target:failing:down");
  assert.deepEqual([breaker?.state, failed, (await belay.get(id)).attempt], ["open", 5, 1]);
  await belay.cancel(id);
});

test("the end of a probe is reported until the server answers, that of another failure once", async (t) => {
  const seen: Call[] = [];
  let lost = 0;
  const belay = await working(
    t,
    "probe",
    async (ends: string[], run) => {
      for (const [n, end] of ends.entries()) {
        const step = run.step(
          `s${n}`,
          () => {
            if (end === "ok") return end;
            throw end === "permanent" ? permanent(end) : new Error(end);
          },
          { target: "probe:t" },
        );
        await step.catch(() => undefined);
      }
    },
    async (call, go) => {
      seen.push(call);
      if (call.outcome !== undefined && lost++ % 2 === 0) throw new TypeError("the connection is lost");
      const r = await go();
      const body = (await r.json()) as object;
      return Response.json(call.step === "s3" ? body : { ...body, probe: true }, { status: r.status });
    },
  );
  const { id } = await belay.submit("probe", { queue: "probe", input: ["ok", "permanent", "down", "down"] });
  assert.equal((await belay.result(id)).state, "succeeded");
  assert.deepEqual(
    seen.map((c) => [c.target, c.step, c.outcome].join(" ")),
    [
      ...["probe:t s0 ", "probe:t s0 succeeded", "probe:t s0 succeeded"],
      ...["probe:t s1 ", "probe:t s1 released", "probe:t s1 released"],
      ...["probe:t s2 ", "probe:t s2 failed", "probe:t s2 failed"],
      ...["probe:t s3 ", "probe:t s3 failed"],
    ],
  );
});

test("a step asks again if it gets no answer, and a malformed answer is no permission", async (t) => {
  let asked = 0;
  let called = 0;
  const belay = await working(
    t,
    "asks",
    (_, run) => run.step("charge", () => ++called, { target: "asks:t" }),
    async (_, go) => {
      switch (++asked) {
        case 1:
          throw new TypeError("the connection is lost");
        case 2:
          return Response.json({ code: "unavailable", detail: "later" }, { status: 503 });
        case 3:
          return Response.json({ open: "yes", why: 5, retry_after_ms: "soon" });
        default:
          assert.equal(called, 0);
          return go();
      }
    },
  );
  const { id } = await belay.submit("asks", { queue: "asks", max_attempts: 1 });
  const x = await belay.result(id);
  assert.deepEqual([x.state, x.output, asked, called], ["succeeded", 1, 4, 1]);
});

test("a name that no target can have fails the step for good", async (t) => {
  const belay = await working(t, "named", (_, run) => run.step("charge", () => 1, { target: "x".repeat(300) }));
  const x = await belay.result((await belay.submit("named", { queue: "named" })).id);
  assert.deepEqual([x.state, x.error?.class], ["failed", "permanent"]);
});

async function until(done: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + 30_000; !(await done());) {
    if (performance.now() > end) assert.fail("not within 30 s");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
