import assert from "node:assert/strict";
import { test } from "node:test";
import { Belay, BelayError } from "belay-client";
import { start } from "./kit.js";

const is = (code: string) => (e: unknown) => e instanceof BelayError && e.code === code;

test("an ended execution is deleted", async (t) => {
  const { url } = await start(t);
  const belay = new Belay({ url });
  const { id } = await belay.submit("invoice", { input: { n: 1 } });
  await assert.rejects(belay.delete(id), is("conflict"));
  await belay.cancel(id);
  const gone = await belay.delete(id, { actor: "ann", reason: "private data" });
  assert.deepEqual([gone.id, gone.state], [id, "cancelled"]);
  await assert.rejects(belay.get(id), is("not_found"));
  await assert.rejects(belay.delete(id), is("not_found"));
});
