import { answer, type Api } from "./call.js";
import { newKey } from "./id.js";
import { header, segment } from "./path.js";
import type { components, operations } from "./schema.js";
import { follow, parse, type Source, type StreamOptions } from "./stream.js";

type Schemas = components["schemas"];

/** A prompt for the agent, with its result when it has one. */
export type Job = Schemas["Job"];

/** The end of a job, which is the end of its log. */
export type JobEnd = Schemas["JobEnd"];

/** A part of the log of a job: output of the agent, or its progress. */
export type JobEvent =
  { readonly event: "output"; readonly text: string } | { readonly event: "progress"; readonly data: unknown };

export interface Execute extends Omit<Schemas["Execute"], "prompt"> {
  /** Names the job: a repeated call with the same key finds the first job. */
  idempotencyKey?: string;
}

export interface Reply extends Omit<Schemas["Reply"], "prompt"> {
  /** Names the job: a repeated call with the same key finds the first job. */
  idempotencyKey?: string;
}

export interface FollowOptions extends StreamOptions {
  /** The id of the last event that the caller has. */
  after?: string;
}

/** Jobs has the routes of the agent service; see docs/agents.md of Belay. */
export class Jobs {
  readonly #api: Api;
  readonly #source: Source;

  constructor(api: Api, source: Source) {
    this.#api = api;
    this.#source = source;
  }

  /** execute sends a prompt to the agent. It returns the id of the job, which is the id of its execution. */
  async execute(prompt: string, o: Execute = {}): Promise<string> {
    const { idempotencyKey = newKey(), ...rest } = o;
    const params = { header: { "Idempotency-Key": header("the idempotency key", idempotencyKey) } };
    const accepted = await answer(this.#api.POST("/execute", { params, body: { prompt, ...rest } }));
    return accepted.job_id;
  }

  /**
   * reply continues the conversation and the work of a job, which must have ended, and returns the id of the new job. A
   * job can be continued once.
   */
  async reply(id: string, prompt: string, o: Reply = {}): Promise<string> {
    const { idempotencyKey = newKey(), ...rest } = o;
    const params = { path: { id }, header: { "Idempotency-Key": header("the idempotency key", idempotencyKey) } };
    const accepted = await answer(this.#api.POST("/jobs/{id}/prompt", { params, body: { prompt, ...rest } }));
    return accepted.job_id;
  }

  /** answer answers the newest question of the agent of a job. Another answer to the same question is refused. */
  async answer(id: string, text: string, o: { actor?: string } = {}): Promise<void> {
    await answer(this.#api.POST("/jobs/{id}/answer", { params: { path: { id } }, body: { ...o, answer: text } }));
  }

  /** list reads a page of jobs, the newest first. */
  list(query: NonNullable<operations["listJobs"]["parameters"]["query"]> = {}): Promise<Schemas["JobList"]> {
    return answer(this.#api.GET("/jobs", { params: { query } }));
  }

  /** get reads a job. */
  get(id: string): Promise<Job> {
    return this.#get(id, {});
  }

  /** result waits for the end of a job, however long that takes, and returns the job. */
  async result(id: string, signal?: AbortSignal): Promise<Job> {
    for (;;) {
      signal?.throwIfAborted();
      const job = await this.#get(id, { wait: "60" }, signal);
      if (job.finished_at !== null) return job;
    }
  }

  /** The route can also answer with a stream, which only a request for one gets. */
  #get(id: string, query: { wait?: string }, signal?: AbortSignal): Promise<Job> {
    const params = { path: { id }, query };
    return answer(this.#api.GET("/jobs/{id}", { params, ...(signal ? { signal } : {}) })) as Promise<Job>;
  }

  /** cancel cancels a job. */
  async cancel(id: string): Promise<void> {
    const params = { path: { id }, header: { "Idempotency-Key": newKey() } };
    await answer(this.#api.POST("/jobs/{id}/cancel", { params }));
  }

  /** log yields the output and the progress of a job until it ends; the generator's return value is the end. */
  async *log(id: string, o: FollowOptions = {}): AsyncGenerator<JobEvent, JobEnd, undefined> {
    const { after, ...rest } = o;
    const last = after === undefined ? undefined : header("after", after);
    for await (const m of follow(this.#source, { ...rest, path: `/jobs/${segment(id)}/log`, last })) {
      if (m.event === "end") return parse<JobEnd>(m);
      if (m.event === "output") yield { event: "output", text: parse<Schemas["Output"]>(m).text };
      if (m.event === "progress") yield { event: "progress", data: parse<object>(m) };
    }
    const { status, exit_code, error } = await this.get(id);
    return { status: status as JobEnd["status"], exit_code, error };
  }
}
