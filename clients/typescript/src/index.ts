export { Belay, type LockOptions, type Options, type Submit, type Why } from "./client.js";
export { BelayError, LeaseHeld, LeaseLost, type Code, type Holder, type LostBecause, type Problem } from "./error.js";
export type { Fetch } from "./fetch.js";
export { newExecutionId } from "./id.js";
export { Lock, type Thrown } from "./lock.js";
export type { components, operations, paths } from "./schema.js";
export type { End, Event, Execution, WatchOptions } from "./watch.js";
