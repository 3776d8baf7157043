// Uses the responses of a server with OpenAI's own client for npm, as users of that client do. The server's agent is the
// one of examples/agent-service, with structured output; its address is the argument.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { job, jobs, load, runAll, url } from "./run.js";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none needed", timeout: 60_000 });
// A client that ignores the header X-Should-Retry, as other SDKs do.
const deaf = new OpenAI({
  baseURL: `${url}/v1`,
  apiKey: "none needed",
  fetch: async (...args) => {
    const response = await fetch(...args);
    const headers = new Headers(response.headers);
    headers.delete("x-should-retry");
    return new Response(response.body, { status: response.status, headers });
  },
});
const asking = (input, more) => ({ model: "gpt-whatever", input, ...more });

const checks = {
  async answer() {
    const { data, response } = await client.responses.create(asking("one\ntwo", { metadata: { ticket: "7" } })).withResponse();
    assert.equal(data.output_text, "two");
    assert.equal(data.status, "completed");
    assert.equal(data.model, "gpt-whatever");
    assert.deepEqual(data.metadata, { ticket: "7" });
    assert.equal(data.usage.total_tokens, 107);
    assert.equal(data.id, `resp_${response.headers.get("x-execution-id")}`);
    const again = await client.responses.retrieve(data.id);
    assert.equal(again.output_text, "two");
    assert.deepEqual(again.metadata, { ticket: "7" });
    assert.equal((await client.responses.cancel(data.id)).status, "completed");
    await assert.rejects(client.responses.retrieve("resp_none"), OpenAI.NotFoundError);
  },

  async conversation() {
    const first = await client.responses.create(asking("hello"));
    const { output_text } = await client.responses.create(
      asking([...first.output, { type: "item_reference", id: first.output[0].id }, { role: "user", content: [{ type: "input_text", text: "where" }] }], {
        instructions: "be brief",
        stream: false,
      }),
    );
    assert.equal(output_text, "</message>");
  },

  async stream() {
    const types = [];
    const said = [];
    for await (const event of await client.responses.create(asking("one\nsleep 1\ntwo", { stream: true }))) {
      assert.equal(event.sequence_number, types.length);
      types.push(event.type);
      if (event.type === "response.output_text.delta") said.push(event.delta);
    }
    assert.ok(said.length >= 2, "the text came in one piece");
    assert.equal(said.join(""), "one\n\ntwo");
    assert.deepEqual(
      types.filter((type) => type !== "response.output_text.delta"),
      [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
      ],
    );
  },

  async "stream, gathered"() {
    const whole = await client.responses.stream(asking("one\ntwo")).finalResponse();
    assert.equal(whole.output_text, "one\n\ntwo");
    assert.equal(whole.status, "completed");
    assert.equal(whole.usage.total_tokens, 107);
  },

  async failure() {
    for (const c of [client, deaf]) {
      const before = await jobs();
      const refused = await c.responses.create(asking("fail 3")).catch((e) => e);
      assert.ok(refused instanceof OpenAI.UnprocessableEntityError, `${refused}`);
      assert.equal(refused.code, "agent_failed");
      assert.match(refused.message, /exit code 3/);
      assert.equal((await jobs()) - before, 1, "the number of runs of the agent");
    }
  },

  async "failure in a stream"() {
    const before = await jobs();
    const whole = await deaf.responses.stream(asking("one\nfail 3")).finalResponse();
    assert.equal(whole.status, "failed");
    assert.equal(whole.error.code, "agent_failed");
    assert.match(whole.error.message, /exit code 3/);
    assert.equal((await jobs()) - before, 1, "the number of runs of the agent");
  },

  async "bad requests"() {
    const tool = { type: "function", name: "f", parameters: {}, strict: false };
    for (const [param, more] of [
      ["tools", { tools: [tool] }],
      ["tools", { tools: [{ type: "web_search" }] }],
      ["previous_response_id", { previous_response_id: "resp_1" }],
      ["background", { background: true }],
      ["text.format", { text: { format: { type: "json_object" } } }],
      ["input", { input: [{ role: "user", content: [{ type: "input_image", image_url: "https://x.example/a.png" }] }] }],
      ["input", { input: [{ type: "function_call_output", call_id: "c", output: "x" }] }],
      ["input", { input: [{ type: "item_reference", id: "msg_other" }] }],
    ]) {
      const refused = await client.responses.create({ ...asking("x"), ...more }).catch((e) => e);
      assert.ok(refused instanceof OpenAI.BadRequestError, `${param}: ${refused}`);
      assert.equal(refused.param, param);
    }
    assert.equal((await client.responses.create(asking("x", { tools: [tool], tool_choice: "none" }))).output_text, "x");
    const unknown = await client.embeddings.create({ model: "m", input: "x" }).catch((e) => e);
    assert.ok(unknown instanceof OpenAI.NotFoundError, `${unknown}`);
    assert.equal(unknown.code, "not_found");
    assert.match(unknown.message, /no route/);
  },

  async "abort of a stream"() {
    const stream = await client.responses.create(asking("one\nuntil never", { stream: true }));
    let id;
    for await (const event of stream) {
      if (event.type === "response.created") id = event.response.id.replace("resp_", "");
      if (event.type === "response.output_text.delta") stream.controller.abort();
    }
    assert.match((await job(id)).error, /^cancelled/);
  },

  async abort() {
    const control = new AbortController();
    const asked = client.responses.create(asking("until never"), { signal: control.signal });
    await load(1);
    control.abort();
    await assert.rejects(asked, OpenAI.APIUserAbortError);
    await load(0);
  },

  async key() {
    const headers = { "Idempotency-Key": "responses" };
    const first = await client.responses.create(asking("hello"), { headers });
    assert.equal((await client.responses.create(asking("hello"), { headers })).id, first.id);
    const streamed = await client.responses.stream(asking("hello"), { headers }).finalResponse();
    assert.equal(streamed.id, first.id);
    assert.equal(streamed.output_text, "hello");
    const refused = await client.responses.create(asking("other"), { headers }).catch((e) => e);
    assert.equal(refused.code, "idempotency_mismatch");
  },
};

await runAll(checks);
