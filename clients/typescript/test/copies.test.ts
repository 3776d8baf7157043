import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import * as imported from "belay-client";
import * as worker from "belay-client/worker";

const load = createRequire(process.argv[1]!);

test("instanceof recognizes the errors of another copy of the package", () => {
  const required = load("belay-client") as typeof imported;
  const other = load("belay-client/worker") as typeof worker;
  for (const [a, b] of [
    [imported, required],
    [required, imported],
  ] as const) {
    const lost: unknown = new a.LeaseLost("lease_lost", "gone");
    assert.ok(lost instanceof b.LeaseLost && lost instanceof b.BelayError && lost instanceof Error);
    assert.ok(!(lost instanceof b.LeaseHeld) && !(new a.BelayError("invalid", "no") instanceof b.LeaseLost));
  }
  assert.ok(worker.permanent("no") instanceof other.RunError && !(new worker.Yield() instanceof other.RunError));
  for (const value of [undefined, null, 7, "x", {}, Object.create(null), new Error("x")]) {
    assert.ok(!((value as unknown) instanceof imported.BelayError));
  }
  class Mine extends imported.BelayError {}
  assert.ok(new Mine("invalid", "no") instanceof Mine && !(new imported.BelayError("invalid", "no") instanceof Mine));
});
