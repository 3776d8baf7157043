package definition

import "github.com/belaydev/belay"

// keyPattern is the form of the key of a schedule or webhook. A key has no dots, so that the name of a document and a
// key with a dot between them are the name of one schedule or webhook only.
const keyPattern = `[A-Za-z0-9][A-Za-z0-9_-]{0,59}`

// onType is the type of the key on of a document.
var onType = Type{Kind: kindMap, Fields: []Field{
	{Name: "schedules", Type: Type{Kind: kindMap, Item: &scheduleType}, Doc: "Schedules by their keys, 20 at most. " +
		"Under the key `daily`, the document `nightly` defines the schedule `nightly.daily`."},
	{Name: "webhooks", Type: Type{Kind: kindMap, Item: &webhookType}, Doc: "Webhooks by their keys, 20 at most. " +
		"Under the key `push`, the document `nightly` defines the webhook `nightly.push`."},
}}

var (
	labelType    = Type{Kind: kindText, Max: belay.MaxName, Example: "eu", Expression: true}
	labelsType   = Type{Kind: kindMap, Item: &labelType}
	priorityType = Type{Kind: kindNumber, Min: -belay.MaxPriority, Max: belay.MaxPriority, Example: "10"}
)

var scheduleType = Type{Kind: kindMap, Fields: []Field{
	{Name: "cron", Type: text("0 3 * * *"), Doc: "The times as a cron expression. Either `cron` or `every` is set."},
	{Name: "time_zone", Type: text("Europe/Berlin"), Default: "UTC", Doc: "The IANA time zone of `cron`."},
	{Name: "every", Type: duration("15m"), Doc: "The time between slots, from one second on."},
	{Name: "offset", Type: duration("5m"), Doc: "With `every`: moves the slots by this time."},
	{Name: "jitter", Type: duration("1m"), Doc: "Delays each slot by a part of this time."},
	{Name: "overlap", Default: string(belay.SkipOverlap), Type: Type{Kind: kindText, Enum: []string{
		string(belay.SkipOverlap), string(belay.BufferOne), string(belay.BufferAll), string(belay.CancelOther),
		string(belay.AllowAll),
	}}, Doc: "Decides about a slot while an earlier execution has not ended."},
	{Name: "catch_up", Type: duration("1h"), Default: "1h",
		Doc: "How late a slot may start after no server was running."},
	{Name: "input", Type: Type{Kind: kindAny}, Doc: "The input of the executions, without expressions."},
	{Name: "labels", Type: labelsType, Doc: "Labels of the executions, for people and filters."},
	{Name: "priority", Type: priorityType, Default: "0", Doc: "The priority of the executions."},
}}

var webhookType = Type{Kind: kindMap, Fields: []Field{
	{Name: "scheme", Required: true, Type: Type{Kind: kindText, Example: "github", Enum: []string{
		string(belay.SchemeHMAC), string(belay.SchemeStandard), string(belay.SchemeGitHub), string(belay.SchemeGitLab),
		string(belay.SchemeStripe), string(belay.SchemeSlack), string(belay.SchemeCloudEvents),
		string(belay.SchemeAMQP),
	}}, Doc: "How the sender signs its deliveries. The deliveries of the scheme `amqp` are the messages of a queue."},
	{Name: "secrets", Type: Type{Kind: kindList, Min: 1, Max: 2, Item: &Type{Kind: kindText, Expression: true, Min: 1,
		Max: belay.MaxName, Example: "${{ secrets.GITHUB_HOOK }}"}}, Doc: "References such as " +
		"`${{ secrets.GITHUB_HOOK }}`: one, or two while one replaces the other. The schemes `cloudevents` and `amqp` have none."},
	{Name: "hmac", Type: hmacType, Doc: "The signature of the scheme `hmac`."},
	{Name: "amqp", Type: amqpType, Doc: "The queue of the scheme `amqp`."},
	{Name: "filter", Type: Type{Kind: kindExpression, Example: `event.type == "push"`},
		Doc: "An expression. A delivery for which it is false starts nothing."},
	{Name: "max_bytes", Default: "1048576", Type: Type{Kind: kindNumber, Min: 1, Max: belay.MaxDeliveryBytes,
		Example: "65536"}, Doc: "The largest body, in bytes."},
	{Name: "rate", Default: "50", Type: Type{Kind: kindNumber, Min: 1, Max: 10_000, Example: "10"},
		Doc: "The deliveries per second that one server accepts. The scheme `amqp` has no limit by default."},
	{Name: "input", Type: Type{Kind: kindAny, Expression: true}, Doc: "The input of the executions. Its texts may " +
		"contain expressions in `${{ }}`, which read the event. Without it, the input is the body, or nothing if the " +
		"document has no `input`."},
	{Name: "labels", Type: labelsType, Doc: "Labels of the executions. The values may contain expressions."},
	{Name: "priority", Type: priorityType, Default: "0", Doc: "The priority of the executions."},
	{Name: "signal", Type: signalType, Doc: "The signal that a delivery sends to an execution, instead of starting " +
		"one. Not together with `input`, `labels` and `priority`."},
}}

var amqpType = Type{Kind: kindMap, Fields: []Field{
	{Name: "queue", Required: true, Type: text("orders"), Doc: "The name of a queue in RabbitMQ."},
	{Name: "without_id", Default: string(belay.RefuseWithoutID), Type: Type{Kind: kindText, Enum: []string{
		string(belay.RefuseWithoutID), string(belay.HashWithoutID)}}, Doc: "Decides about messages without an id: " +
		"they are refused, or the hash of the body is the id."},
}}

var hmacType = Type{Kind: kindMap, Fields: []Field{
	{Name: "header", Required: true, Type: text("X-Signature"), Doc: "The header with the signature."},
	{Name: "prefix", Type: text("sha256="), Doc: "A text before the signature."},
	{Name: "algorithm", Default: "sha256", Type: Type{Kind: kindText, Enum: []string{"sha256", "sha512"}},
		Doc: "The hash."},
	{Name: "encoding", Default: "hex", Type: Type{Kind: kindText, Enum: []string{"hex", "base64"}},
		Doc: "The form of the signature."},
	{Name: "timestamp_header", Type: text("X-Timestamp"), Doc: "The header with the time of the delivery, which the " +
		"signature then covers."},
	{Name: "id_header", Type: text("X-Delivery"), Doc: "The header with the id of the delivery."},
}}

var signalType = Type{Kind: kindMap, Fields: []Field{
	{Name: "name", Required: true, Type: text("paid"), Doc: "The name of the signal."},
	{Name: "execution", Type: Type{Kind: kindExpression, Example: "event.data.execution"},
		Doc: "An expression for the id of the execution. Either this, or `workflow` and `key`."},
	{Name: "workflow", Type: text("order"), Doc: "The workflow of the execution."},
	{Name: "key", Type: Type{Kind: kindExpression, Example: "event.data.order"}, Doc: "An expression for the " +
		"idempotency key of the execution."},
	{Name: "payload", Type: Type{Kind: kindAny, Expression: true}, Doc: "The payload, whose texts may contain " +
		"expressions. Without it, the payload is the body."},
}}
