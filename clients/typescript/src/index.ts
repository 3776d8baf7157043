export type { Ended } from "./await.js";
export type { Op, Result, Submission, Submitted } from "./batch.js";
export { Bulk, type BulkFilter, type BulkOptions, type BulkPreview, type BulkProgress } from "./bulk.js";
export { spoken, type ChatOptions, type ChatRequest, type Completion } from "./chat.js";
export { Belay, type LockOptions, type Options, type Submit, type Why } from "./client.js";
export { BelayError, LeaseHeld, LeaseLost, type Code, type Holder, type LostBecause, type Problem } from "./error.js";
export type { Fetch } from "./fetch.js";
export {
  DeadLetters,
  type DeadLetter,
  type DeadLetterDetail,
  type DeadLetterGroup,
  type DeadLetterWhy,
  type RequeueOptions,
} from "./dead.js";
export {
  Schedules, type Overlap, type Schedule, type ScheduleIf, type ScheduleSlot, type ScheduleTerms, type ScheduleWhy,
} from "./schedules.js";
export {
  Webhooks, type CloudEvent, type CloudEventResult, type PublishedEvent, type TestDelivery, type Webhook,
  type WebhookDelivery, type WebhookDeliveryData, type WebhookTerms,
} from "./webhooks.js";
export { Documents, type Document, type DocumentIf, type DocumentVersion, type DocumentWhy } from "./documents.js";
export { gate, Gates, type CircuitBreaker, type Gate, type GateKind, type GatePause, type GateWhy, type ResourceTerms } from "./gates.js";
export { Notifications, type NotificationTarget, type NotificationTargetTerms } from "./notifications.js";
export { newExecutionId } from "./id.js";
export { Jobs, type Execute, type FollowOptions, type Job, type JobEnd, type JobEvent, type Reply } from "./jobs.js";
export { Lock, type Thrown } from "./lock.js";
export type { components, operations, paths } from "./schema.js";
export type { SnapshotCause, StateChange, StateNews, StateQuery, Status } from "./states.js";
export type { StreamOptions } from "./stream.js";
export type { End, Event, Execution, ExecutionDetail, WatchOptions } from "./watch.js";
