// Talks to a server with OpenAI's own client for npm and holds what it gets against what that client's users expect. The server's
// agent is the one of examples/agent-service, with structured output; its address is the argument.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { job, runAll, url } from "./run.js";

let requests = 0;
const counted = (...args) => {
  requests++;
  return fetch(...args);
};
// With the retries that it makes by itself.
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none needed", fetch: counted, timeout: 60_000 });

const asking = (prompt, more) => ({ model: "gpt-whatever", messages: [{ role: "user", content: prompt }], ...more });

const checks = {
  async models() {
    const all = [];
    for await (const model of client.models.list()) all.push(model.id);
    assert.equal(all.length, 1);
    assert.equal((await client.models.retrieve(all[0])).object, "model");
    await assert.rejects(client.models.retrieve("other"), OpenAI.NotFoundError);
  },

  async answer() {
    const { data, response } = await client.chat.completions.create(asking("one\ntwo")).withResponse();
    assert.equal(data.choices.length, 1);
    assert.equal(data.choices[0].message.content, "two");
    assert.equal(data.choices[0].message.role, "assistant");
    assert.equal(data.choices[0].finish_reason, "stop");
    assert.equal(data.model, "gpt-whatever");
    assert.deepEqual(data.usage, { prompt_tokens: 100, completion_tokens: 7, total_tokens: 107 });
    assert.equal(data.id, `chatcmpl-${response.headers.get("x-execution-id")}`);
  },

  async stream() {
    const stream = await client.chat.completions.create(asking("one\nsleep 1\ntwo", { stream: true, stream_options: { include_usage: true } }));
    const said = [];
    let usage, finish;
    for await (const chunk of stream) {
      const choice = chunk.choices[0];
      if (choice?.delta.content) said.push(choice.delta.content);
      finish = choice?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.ok(said.length >= 2, "it came in one piece");
    assert.equal(said.join(""), "one\n\ntwo");
    assert.equal(finish, "stop");
    assert.equal(usage.total_tokens, 107);
  },

  async "stream, gathered"() {
    const runner = client.chat.completions.stream(asking("one\ntwo", { stream_options: { include_usage: true } }));
    const whole = await runner.finalChatCompletion();
    assert.equal(whole.choices[0].message.content, "one\n\ntwo");
    assert.equal((await runner.totalUsage()).total_tokens, 107);
  },

  async failure() {
    requests = 0;
    const refused = await client.chat.completions.create(asking("fail 3")).catch((e) => e);
    assert.ok(refused instanceof OpenAI.UnprocessableEntityError, `${refused}`);
    assert.equal(refused.code, "agent_failed");
    assert.match(refused.message, /exit code 3/);
    assert.equal(requests, 1, "the agent was run again by itself");
  },

  async "failure in a stream"() {
    const stream = await client.chat.completions.create(asking("one\nfail 3", { stream: true }));
    await assert.rejects(async () => {
      for await (const _ of stream);
    }, (e) => e instanceof OpenAI.APIError && /exit code 3/.test(e.message));
  },

  async "bad request"() {
    const refused = await client.chat.completions.create(asking("x", { n: 2 })).catch((e) => e);
    assert.ok(refused instanceof OpenAI.BadRequestError, `${refused}`);
    assert.equal(refused.param, "n");
    assert.equal(refused.type, "invalid_request_error");
  },

  async "abort of a stream"() {
    const stream = await client.chat.completions.create(asking("one\nuntil never", { stream: true }));
    let id;
    for await (const chunk of stream) {
      id = chunk.id.replace("chatcmpl-", "");
      if (chunk.choices[0]?.delta.content) stream.controller.abort();
    }
    const ended = await job(id);
    assert.equal(ended.status, "error");
    assert.match(ended.error, /^cancelled/);
  },

  async abort() {
    const control = new AbortController();
    const asked = client.chat.completions.create(asking("until never", { metadata: {} }), { signal: control.signal });
    for (let active = 0; active === 0; ) active = (await (await fetch(`${url}/health`)).json()).active;
    control.abort();
    await assert.rejects(asked, OpenAI.APIUserAbortError);
    for (let active = 1; active > 0; ) active = (await (await fetch(`${url}/health`)).json()).active;
  },

  async key() {
    const ask = async () => (await client.chat.completions.create(asking("hello"), { headers: { "Idempotency-Key": "npm" } })).id;
    assert.equal(await ask(), await ask());
  },
};

await runAll(checks);
