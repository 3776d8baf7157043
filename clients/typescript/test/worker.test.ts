import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError, LeaseLost } from "belay-client";
import {
  Cancelled,
  permanent,
  RunError,
  Stopping,
  TimedOut,
  WaitTimeout,
  Worker,
  Yield,
  type Run,
  type WorkerOptions,
} from "belay-client/worker";
import { shared, start, type Test } from "./kit.js";

const quiet = { warn: () => {}, error: () => {} };

/** client makes a client of the shared server. */
const client = async () => new Belay({ url: await shared() });

/** working runs a worker for the length of a test. Its queue has the name of the test. */
function working(t: Test, belay: Belay, queue: string, register: (w: Worker) => void, o: WorkerOptions = {}) {
  const worker = new Worker(belay, { queues: [queue], graceMs: 5_000, log: quiet, ...o });
  register(worker);
  const running = worker.run();
  running.catch(() => undefined);
  t.after(async () => {
    worker.stop();
    await running.catch(() => undefined);
  });
  return { worker, running };
}

/** gate is a promise with the function that resolves it. */
function gate<T = void>(): { open: (v: T) => void; passed: Promise<T> } {
  let open!: (v: T) => void;
  const passed = new Promise<T>((resolve) => (open = resolve));
  return { open, passed };
}

const aborted = (signal: AbortSignal) =>
  new Promise<unknown>((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    signal.addEventListener("abort", () => resolve(signal.reason));
  });

test("a worker runs typed functions of several queues and versions, many at the same time", async (t) => {
  const belay = await client();
  let now = 0;
  let most = 0;
  const worker = (w: Worker) =>
    w
      .register<{ n: number }, { double: number }>("double", async ({ n }, run) => {
        most = Math.max(most, ++now);
        await run.step("think", () => new Promise((resolve) => setTimeout(resolve, 30)));
        now--;
        return { double: 2 * n };
      })
      .register("double", (_, run) => ({ version: run.version, queue: run.queue, attempt: run.attempt }), {
        version: "2",
      });
  working(t, belay, "a", worker, { queues: ["a", "b"], concurrency: 3 });
  const list = Array.from({ length: 12 }, (_, n) => ({ workflow: "double", input: { n }, queue: n % 2 ? "a" : "b" }));
  const submitted = await belay.submitMany([...list, { workflow: "double", queue: "a", version: "2" }]);
  const ended = await belay.results(submitted.map((s) => s.id));
  assert.deepEqual(
    ended.slice(0, 12).map((x) => x.output),
    list.map((s) => ({ double: 2 * s.input.n })),
  );
  assert.deepEqual(ended[12]!.output, { version: "2", queue: "a", attempt: 1 });
  assert.equal(most, 3);
});

test("an attempt continues from the saved steps and the state of the last one", async (t) => {
  const belay = await client();
  const calls: string[] = [];
  working(t, belay, "steps", (w) =>
    w.register("pay", async (_, run) => {
      calls.push(`run ${run.attempt}`);
      const at = await run.step("charge", () => (calls.push("charge"), { at: new Date(0), none: undefined }));
      const nothing = await run.step("nothing", () => void calls.push("nothing"));
      assert.equal(nothing, undefined);
      if (run.attempt === 1) {
        assert.equal(run.state, undefined);
        await run.saveState({ charged: true });
        throw new RunError("the bank did not answer", { retryAfterMs: 10 });
      }
      for (let n = 0; n < 3; n++) run.addCost(0.1); // in binary, the sum of three is not 0.3
      run.addCost(6.7001);
      for (const bad of [-1, -0.0001, 0.00001, 0.1 + 0.2, NaN, Infinity, 1e11]) {
        assert.throws(() => run.addCost(bad), /addCost: .* is not a number of tokens/);
      }
      run.addCost(99_999_999_990.5);
      assert.throws(() => run.addCost(9.5), /a hundred billion/);
      await assert.rejects(
        run.step("charge", () => 1),
        /used twice/,
      );
      await assert.rejects(run.sleep("nothing", 1), /used twice/);
      return { at, state: run.state };
    }),
  );
  const { id } = await belay.submit("pay", { queue: "steps", backoff_base: "10ms" });
  const done = await belay.result(id);
  assert.deepEqual(done.output, { at: { at: "1970-01-01T00:00:00.000Z" }, state: { charged: true } });
  assert.deepEqual(calls, ["run 1", "charge", "nothing", "run 2"]);
  assert.equal(done.cost_tokens, 99_999_999_997.5001);
});

test("an error of the function decides how the execution continues", async (t) => {
  const belay = await client();
  working(t, belay, "errors", (w) =>
    w
      .register("permanent", () => {
        throw permanent("no such account");
      })
      .register("output", () => {
        throw new RunError("half of it", { permanent: true, output: { half: 1 } });
      })
      .register("odd output", () => {
        throw new RunError("none", { permanent: true, output: 10n });
      })
      .register("again", (_, run) => {
        if (run.attempt < 3) throw new TypeError("not yet");
        return run.attempt;
      })
      .register("cycle", () => {
        const a: { a?: unknown } = {};
        a.a = a;
        return a;
      })
      .register("large", () => "x".repeat(2 ** 21))
      .register("large step", (_, run) => run.step("large", () => "x".repeat(2 ** 21)))
      .register("tries", async (_, run) => {
        let n = 0;
        return run.step("flaky", () => (++n < 3 ? Promise.reject(new Error("flaky")) : n), { attempts: 3, baseMs: 1 });
      })
      .register("left alone", (_, run) => {
        void run.step("nobody awaits this", () => Promise.reject(new Error("unseen")));
        return "fine";
      }),
  );
  const names = ["permanent", "output", "odd output", "again", "cycle", "large", "large step", "tries", "left alone"];
  const submitted = await belay.submitMany(
    names.map((workflow) => ({ workflow, queue: "errors", backoff_base: "10ms" })),
  );
  const [fixed, output, odd, again, cycle, large, step, tries, alone] = await belay.results(submitted.map((s) => s.id));
  assert.deepEqual(
    [fixed!.state, fixed!.attempt, fixed!.error?.class, fixed!.error?.message],
    ["failed", 1, "permanent", "no such account"],
  );
  assert.deepEqual([output!.state, output!.output], ["failed", { half: 1 }]);
  assert.deepEqual([odd!.state, odd!.output, odd!.error?.message], ["failed", undefined, "none"]);
  assert.deepEqual([again!.state, again!.output], ["succeeded", 3]);
  assert.match(cycle!.error!.message, /the output cannot be written as JSON/);
  assert.deepEqual([large!.state, large!.attempt, large!.error?.class], ["failed", 1, "permanent"]);
  assert.deepEqual([step!.state, step!.attempt, step!.error?.class], ["failed", 1, "permanent"]);
  assert.equal(tries!.output, 3);
  assert.equal(alone!.output, "fine");
});

test("a cancel, a timeout and a stolen lease abort the function's signal, with the reason", async (t) => {
  const belay = await client();
  const begun = gate<Run>();
  const lost = gate<unknown>();
  working(
    t,
    belay,
    "aborts",
    (w) =>
      w
        .register("cancelled", async (_, run) => {
          begun.open(run);
          const reason = await aborted(run.signal);
          assert.ok(reason instanceof Cancelled && reason.withinMs > 0);
          await run.saveState("cleaned up");
          throw reason;
        })
        .register("late", async (_, run) => {
          throw await aborted(run.signal);
        })
        .register("stolen", async (_, run) => {
          if (run.attempt > 1 || run.token > 1) return "the second owner";
          void belay.api.POST("/v1/executions/{id}/lock/steal", {
            params: { path: { id: run.execution } },
            body: { reason: "test" },
          });
          const reason = await aborted(run.signal);
          await assert.rejects(
            run.step("late", () => 1),
            LeaseLost,
          );
          assert.throws(() => run.guard(), LeaseLost);
          lost.open(reason);
          return "the first owner";
        }),
    { ttl: "2s" },
  );
  const cancelled = await belay.submit("cancelled", { queue: "aborts" });
  await begun.passed;
  await belay.cancel(cancelled.id);
  assert.equal((await belay.result(cancelled.id)).state, "cancelled");
  const late = await belay.submit("late", { queue: "aborts", run_timeout: "1s", max_attempts: 1 });
  const end = await belay.result(late.id);
  assert.deepEqual(
    [end.state, end.error?.class, end.error?.message],
    ["failed", "timeout", "TimedOut: the time of the run is over"],
  );
  const stolen = await belay.submit("stolen", { queue: "aborts" });
  assert.ok((await lost.passed) instanceof LeaseLost);
  assert.equal((await belay.result(stolen.id)).output, "the second owner");
  assert.ok(new TimedOut() instanceof Error);
});

test("a run sleeps and waits for signals without its worker, and times out", async (t) => {
  const belay = await client();
  const runs: Record<string, number> = {};
  const count = (run: Run) => (runs[run.workflow] = (runs[run.workflow] ?? 0) + 1);
  working(t, belay, "waits", (w) =>
    w
      .register("sleep", async (_, run) => {
        count(run);
        await run.sleep("short", 20);
        await run.sleep("long", 1_600);
        return run.attempt;
      })
      .register("approve", async (_, run) => {
        count(run);
        const first = await run.waitSignal<{ by: string }>("approved");
        const second = await run.waitSignal<{ by: string }>("approved", { key: "again" });
        return [first.by, second.by];
      })
      .register("impatient", async (_, run) => {
        count(run);
        try {
          return await run.waitSignal("never", { timeoutMs: 1_500 });
        } catch (err) {
          if (err instanceof WaitTimeout) return "timeout";
          throw err;
        }
      })
      .register("beside", async (_, run) => {
        count(run);
        const steps = async () => {
          for (let i = 0; i < 4; i++)
            await run.step(`work ${i}`, () => new Promise((resolve) => setTimeout(resolve, 50)));
        };
        const [signal] = await Promise.all([run.waitSignal("go"), steps()]);
        return signal ?? "none";
      }),
  );
  const begun = performance.now();
  const at = (workflow: string) => belay.submit(workflow, { queue: "waits" });
  const [sleep, approve, impatient, beside] = await Promise.all(["sleep", "approve", "impatient", "beside"].map(at));
  await until(async () => (await belay.get(approve!.id)).state === "waiting");
  await belay.signal(approve!.id, "other");
  await belay.signal(approve!.id, "approved", { by: "ann" });
  await belay.signal(approve!.id, "approved", { by: "bert" });
  await until(async () => (await belay.get(beside!.id)).checkpoints === 4);
  await belay.signal(beside!.id, "go");
  const [s, a, i, b] = await belay.results([sleep, approve, impatient, beside].map((x) => x!.id));
  assert.deepEqual([s!.state, s!.output], ["succeeded", 1]);
  assert.deepEqual(a!.output, ["ann", "bert"]);
  assert.equal(i!.output, "timeout");
  assert.equal(b!.output, "none");
  assert.ok(performance.now() - begun >= 1_600);
  assert.equal(runs["sleep"], 2);
  assert.ok(runs["approve"]! >= 2);
});

test("a pause takes effect at the next step, and a resume continues there", async (t) => {
  const belay = await client();
  const begun = gate();
  const go = gate();
  const steps: string[] = [];
  working(
    t,
    belay,
    "pauses",
    (w) =>
      w.register("two", async (_, run) => {
        await run.step("one", async () => {
          steps.push("one");
          begun.open();
          await go.passed;
        });
        try {
          await run.step("two", () => void steps.push("two"));
        } catch (err) {
          assert.ok(err instanceof Yield);
          throw err;
        }
        return "done";
      }),
    { ttl: "1s", heartbeat: "300ms" },
  );
  const { id } = await belay.submit("two", { queue: "pauses" });
  await begun.passed;
  await belay.pause(id);
  await new Promise((resolve) => setTimeout(resolve, 700)); // more than one heartbeat
  go.open();
  await until(async () => (await belay.get(id)).state === "paused");
  assert.deepEqual(steps, ["one"]);
  await belay.resume(id);
  assert.equal((await belay.result(id)).output, "done");
  assert.deepEqual(steps, ["one", "two"]);
});

test("a worker that stops lets functions finish, and gives the others back at once", async (t) => {
  const belay = await client();
  const begun = gate();
  const slow = gate();
  const register = (w: Worker) =>
    w
      .register("quick", () => slow.passed.then(() => "finished"))
      .register("endless", async (_, run) => {
        if (run.token > 1) return "continued";
        begun.open();
        const reason = await aborted(run.signal);
        assert.ok(reason instanceof Stopping);
        throw reason;
      });
  const { worker, running } = working(t, belay, "stops", register, { graceMs: 300 });
  const quick = await belay.submit("quick", { queue: "stops" });
  const endless = await belay.submit("endless", { queue: "stops" });
  await begun.passed;
  await until(async () => (await belay.get(quick.id)).state === "running");
  worker.stop();
  slow.open();
  await running;
  assert.equal((await belay.get(quick.id)).output, "finished");
  const back = await belay.get(endless.id);
  assert.deepEqual([back.state, back.attempt, back.losses ?? 0], ["pending", 1, 0]);
  const mine = (await belay.api.GET("/v1/workers")).data!.workers.filter((x) => x.queues?.includes("stops"));
  assert.deepEqual(
    mine.map((x) => x.state),
    ["drained"],
  );
  working(t, belay, "stops", register);
  assert.equal((await belay.result(endless.id)).output, "continued");
});

test("a function that does not return keeps its lease: no other worker begins the execution", async (t) => {
  const belay = await client();
  const begun = gate();
  const { worker, running } = working(
    t,
    belay,
    "hangs",
    (w) => w.register("hang", () => (begun.open(), new Promise(() => {}))),
    {
      graceMs: 0,
      unwindMs: 50,
      ttl: "30s",
    },
  );
  const { id } = await belay.submit("hang", { queue: "hangs" });
  await begun.passed;
  worker.stop();
  await assert.rejects(running, /did not end within 50 ms/);
  assert.equal((await belay.get(id)).state, "running");
  await belay.cancel(id);
});

test("runs end before another worker may get their executions, if the server stays away", async (t) => {
  const server = await start(t);
  const belay = new Belay({ url: server.url, patienceMs: 500 });
  const begun = gate();
  const reasons: unknown[] = [];
  const { worker, running } = working(
    t,
    belay,
    "default",
    (w) =>
      w.register("outage", async (_, run) => {
        if (reasons.length > 0) return "again";
        begun.open();
        reasons.push(await aborted(run.signal));
        throw reasons[0];
      }),
    { ttl: "3s" },
  );
  const { id } = await belay.submit("outage");
  await begun.passed;
  await server.kill();
  const before = performance.now();
  await until(() => Promise.resolve(reasons.length > 0));
  const after = performance.now() - before;
  assert.ok(reasons[0] instanceof LeaseLost && after < 2_900, `aborted after ${after} ms`);
  await server.up();
  assert.equal((await belay.result(id)).output, "again");
  worker.stop();
  await running;
});

test("a short outage of the server costs no work: a worker repeats its writes", async (t) => {
  const server = await start(t);
  const belay = new Belay({ url: server.url });
  const begun = gate();
  const go = gate();
  let runs = 0;
  const { worker, running } = working(
    t,
    belay,
    "default",
    (w) =>
      w.register("short", async (_, run) => {
        runs++;
        begun.open();
        await go.passed;
        return run.step("saved", () => "saved");
      }),
    { ttl: "60s" },
  );
  const { id } = await belay.submit("short");
  await begun.passed;
  await server.kill();
  go.open();
  await server.up();
  assert.equal((await belay.result(id)).output, "saved");
  assert.equal(runs, 1);
  worker.stop();
  await running;
});

test("a worker that an operator drains, or that the server refuses, ends", async (t) => {
  const belay = await client();
  const { running } = working(t, belay, "drains", (w) => w.register("w", () => 1), {
    ttl: "1s",
    heartbeat: "300ms",
    name: "drained",
  });
  let id = "";
  await until(async () => {
    id = (await belay.api.GET("/v1/workers")).data!.workers.find((x) => x.name === "drained")?.id ?? "";
    return id !== "";
  });
  await belay.api.POST("/v1/workers/{id}/drain", { params: { path: { id } } });
  await running;
  const refused = new Worker(belay, { ttl: "1ms", log: quiet }).register("w", () => 1);
  await assert.rejects(refused.run(), (e) => e instanceof BelayError && e.code === "invalid");
  await assert.rejects(refused.run(), /runs once/);
  await assert.rejects(new Worker(belay).run(), /no workflow is registered/);
  assert.throws(() => new Worker(belay).register("w", () => 1).register("w", () => 2), /registered already/);
});

test("a run with more checkpoints than a claim has room for reads them all", async (t) => {
  const belay = await client();
  const size = 1_000_000;
  working(t, belay, "more", (w) =>
    w.register<{ text: string }>("more", async ({ text }, run) => {
      const lengths: number[] = [text.length];
      for (let i = 0; i < 8; i++) {
        const saved = await run.step(`step ${i}`, () => {
          if (run.attempt > 1) throw permanent(`step ${i} was not read`);
          return "x".repeat(size);
        });
        lengths.push(saved.length);
      }
      if (run.attempt === 1) throw new RunError("again", { retryAfterMs: 1 });
      return lengths;
    }),
  );
  const { id } = await belay.submit("more", { queue: "more", input: { text: "y".repeat(size) }, backoff_base: "10ms" });
  assert.deepEqual((await belay.result(id)).output, Array(9).fill(size));
});

test("the current steps of a run are visible, and the history has times and failed tries", async (t) => {
  const belay = await client();
  const done = gate();
  let tries = 0;
  working(t, belay, "timeline", (w) =>
    w.register("timeline", async (_, run) => {
      await run.step("fast", () => 1);
      await run.step(
        "charge",
        async () => {
          if (++tries < 2) throw new Error("no\u0000\u001b[31m");
          await done.passed;
        },
        { attempts: 3, baseMs: 20 },
      );
      await run.sleep("nap", 50);
      const answer = await run.waitSignal<string>("approved");
      await run.step("last", () => {
        throw permanent("declined");
      });
      return answer;
    }),
  );
  const { id } = await belay.submit("timeline", { queue: "timeline" });
  await until(async () => (await belay.get(id)).current !== undefined);
  const [charge, ...more] = (await belay.get(id)).current!;
  assert.deepEqual(
    { ...charge, began_at: undefined },
    { kind: "step", name: "charge", attempt: 2, began_at: undefined },
  );
  assert.deepEqual(more, []);
  assert.ok(Date.now() - Date.parse(charge!.began_at) < 30_000);
  done.open();
  await until(async () => (await belay.get(id)).state === "waiting");
  await belay.signal(id, "approved", "yes");
  await assert.rejects(belay.result(id).then((x) => assert.equal(x.state, "succeeded")));
  const params = { path: { id } };
  const events = (await belay.api.GET("/v1/executions/{id}/history", { params })).data!.events;
  const find = (kind: string, name?: string) => events.find((e) => e.kind === kind && (name ?? e.name) === e.name)!;
  assert.ok(find("step", "fast").duration_ms! >= 1 && find("step", "fast").duration_ms! < 500);
  const saved = find("step", "charge");
  assert.equal(saved.attempt, 2);
  assert.ok(saved.duration_ms! >= 500);
  assert.deepEqual(
    saved.steps!.map((s) => [s.name, s.attempt, s.over, s.error]),
    [["charge", 1, true, "no [31m"]],
  );
  const nap = [...(find("suspended").steps ?? [])];
  assert.deepEqual(
    nap.map((s) => [s.kind, s.name, s.over ?? false]),
    [
      ["wait", "nap", true],
      ["wait", "approved", false],
    ],
  );
  assert.equal(find("wait", "approved").duration_ms, undefined); // the run that waited has not saved the begin
  const failed = find("failed").steps!.map((s) => [s.name, s.over, s.error]);
  assert.deepEqual(failed, [["last", true, "declined"]]);
});

test("a server that refuses reports of steps gets the same writes without them", async (t) => {
  const url = await shared();
  let refused = 0;
  const fields = /"steps":|"duration_ms":|"attempt":/;
  const older: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const text = request.method === "POST" ? await request.clone().text() : "";
    if (fields.test(text) && !/"submit":/.test(text)) {
      refused++;
      const problem = { type: "about:blank", title: "invalid", status: 422, code: "invalid", detail: "no such field" };
      return new Response(JSON.stringify(problem), {
        status: 422,
        headers: { "Content-Type": "application/problem+json" },
      });
    }
    return fetch(request);
  };
  const belay = new Belay({ url, fetch: older });
  working(t, belay, "older", (w) =>
    w.register("older", async (_, run) => {
      for (const name of ["a", "b", "c"]) await run.step(name, () => name);
      return run.step("d", () => "done");
    }),
  );
  const { id } = await belay.submit("older", { queue: "older" });
  assert.equal((await belay.result(id)).output, "done");
  assert.equal(refused, 1);
});

async function until(done: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + 30_000; !(await done());) {
    if (performance.now() > end) assert.fail("not within 30 s");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
