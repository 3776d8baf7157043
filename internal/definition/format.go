package definition

import "github.com/belaydev/belay"

// Field is a key of the format.
type Field struct {
	Name     string
	Doc      string
	Required bool
	// Default is the value of an absent key, for the reference; empty if there is none.
	Default string
	Type    Type
}

// Type is the type of a value.
type Type struct {
	// Kind is the name of the type in messages and in the reference.
	Kind string
	// Enum are the only values of a text.
	Enum []string
	// Pattern is a regular expression for the whole text, and Example a text that matches it.
	Pattern, Example string
	Min, Max         int
	Fields           []Field  // of a map with known keys
	OneOf            []string // fields of which a map must have exactly one
	Item             *Type    // of a list, or of the values of a map with any keys
	Or               []Type   // alternatives, each of another kind of node
	// Expression says that a text may contain expressions in ${{ }}, and that a text with one may stand for a value of
	// any type.
	Expression bool
}

// The kinds of types.
const (
	kindText       = "text"
	kindNumber     = "number"
	kindBool       = "boolean"
	kindList       = "list"
	kindMap        = "map"
	kindAny        = "any value"
	kindSchema     = "JSON Schema"
	kindExpression = "expression"
	kindDuration   = "duration"
)

// idPattern is the form of the id of a task. An id is part of names that the store limits, and of expressions.
const idPattern = `[A-Za-z][A-Za-z0-9_]{0,59}`

func text(example string) Type {
	return Type{Kind: kindText, Example: example, Min: 1, Max: belay.MaxName}
}

func templateText(example string) Type {
	return Type{Kind: kindText, Example: example, Expression: true, Min: 1, Max: MaxSize}
}

func duration(example string) Type { return Type{Kind: kindDuration, Example: example} }

func taskIDs() Type {
	id := Type{Kind: kindText, Pattern: idPattern, Example: "build"}
	return Type{Kind: kindList, Item: &id, Or: []Type{id}}
}

var retryType = Type{Kind: kindMap, Fields: []Field{
	{Name: "attempts", Doc: "How often the task is tried in all; 1 means no retry.", Default: "3",
		Type: Type{Kind: kindNumber, Min: 1, Max: 1000, Example: "5"}},
	{Name: "backoff", Doc: "The delay after the first failure. It doubles with each further failure.", Default: "1s",
		Type: duration("2s")},
	{Name: "max_backoff", Doc: "The longest delay between two attempts.", Default: "30s", Type: duration("1m")},
}}

var onFailureType = Type{
	Kind: kindText, Enum: []string{"fail", "continue", "quarantine"},
	Or: []Type{{Kind: kindMap, Fields: []Field{
		{Name: "compensate", Required: true, Type: taskIDs(), Doc: "The tasks that undo finished work. Each of them " +
			"names, in its needs, the task whose work it undoes, and runs only if that task has succeeded. They run " +
			"one after the other, in the reverse order in which those tasks succeeded. Then the execution fails."},
	}}},
}

var concurrencyType = Type{Kind: kindMap, Fields: []Field{
	{Name: "name", Required: true, Type: text("deploy"), Doc: "The name of the limit. It counts the executions of " +
		"all workflows that name it."},
	{Name: "max", Doc: "How many executions under this limit may be under way.", Default: "1",
		Type: Type{Kind: kindNumber, Min: 1, Max: belay.MaxConcurrency, Example: "2"}},
}}

var requiresType = Type{Kind: kindMap, Fields: []Field{
	{Name: "resource", Required: true, Type: text("gpu"), Doc: "The name of the resource."},
	{Name: "mode", Required: true, Type: text("llama"), Doc: "The mode in which the task uses the resource."},
	{Name: "preemptible", Type: Type{Kind: kindBool}, Default: "false", Doc: "Whether a run of the task yields at " +
		"its next step or wait, when another mode has waited for the maximum wait."},
}}

// shared are the fields that a task has, and for which defaults gives all tasks a value.
var shared = []Field{
	{Name: "retry", Type: retryType, Doc: "How often, and after which delay, a failed task is tried again. A command " +
		"that ends with an exit code other than 0 is tried again only if the document gives `attempts`."},
	{Name: "timeout", Type: duration("10m"), Doc: "The longest time of one attempt. For `approval` and `signal`: how " +
		"long the task waits."},
	{Name: "queue", Type: text("gpu"), Doc: "The queue in which the task waits for a worker. By default, the tasks " +
		"of `belay run FILE` run in that process, and all other tasks wait in the queue `default`."},
	{Name: "worker_labels", Type: Type{Kind: kindMap, Item: &Type{Kind: kindText, Max: belay.MaxName, Example: "eu"}},
		Doc: "The labels that a worker must have to run the task."},
	{Name: "on_failure", Type: onFailureType, Default: "fail", Doc: "The reaction to the failure of the task. " +
		"`fail`: the execution fails at once, and running tasks are cancelled. `continue`: the tasks that need it " +
		"run, and see its `state` and `error`. `quarantine`: the tasks that need it do not run, all other tasks " +
		"do; then the execution fails, so that a person can repair the task and retry. A map with " +
		"`compensate` names tasks that undo finished work."},
	{Name: "parallel", Default: "10", Type: Type{Kind: kindNumber, Min: 1, Max: 1000, Example: "4"},
		Doc: "How many items of a `foreach` are under way at the same time."},
}

var taskFields = append([]Field{
	{Name: "id", Required: true, Type: Type{Kind: kindText, Pattern: idPattern, Example: "build"},
		Doc: "The name of the task: a letter, then letters, digits and underscores, 60 characters at most."},
	{Name: "description", Type: Type{Kind: kindText, Max: 4096, Example: "Compile"}, Doc: "A text for people."},
	{Name: "uses", Required: true, Type: text("command"), Doc: "The kind of work: `command`, `agent`, `http`, " +
		"`workflow`, `approval`, `signal`, `sleep`, or the name of a workflow that workers have registered. The " +
		"sections below list the keys of `with` for each kind. For the name of a workflow, `with` is the input."},
	{Name: "with", Type: Type{Kind: kindAny, Expression: true}, Doc: "The input of the work. Every text in it may " +
		"contain expressions in `${{ }}`."},
	{Name: "needs", Type: taskIDs(), Doc: "The tasks that must end before this task starts. A task starts as soon as " +
		"all of them have ended."},
	{Name: "if", Type: Type{Kind: kindExpression, Example: "input.deploy"},
		Doc: "An expression. If it is false, the task is skipped, and the tasks that need it run."},
	{Name: "foreach", Type: Type{Kind: kindExpression, Example: "tasks.list.output.files",
		Or: []Type{{Kind: kindList, Item: &Type{Kind: kindAny, Expression: true}}}},
		Doc: "A list, or an expression for a list of at most 10,000 items. The task runs once for each item, which " +
			"expressions see as `item`, with its number from 0 as `index`. The output of the task is the list of the " +
			"outputs, of 1 MiB at most."},
	{Name: "target", Type: text("payments:charge"), Doc: "The external service that the task calls. All executions " +
		"that name a target share its circuit breaker."},
	{Name: "concurrency", Type: concurrencyType, Doc: "A limit on how many executions run at the same time."},
	{Name: "requires", Type: requiresType, Doc: "A resource and its mode. Runs of the same mode share the resource; " +
		"the task waits while the resource is in another mode."},
	{Name: "outputs", Type: Type{Kind: kindAny, Expression: true}, Doc: "The output of the task, made of `output`, " +
		"which is what the work has returned."},
}, shared...)

var schemaType = Type{Kind: kindSchema}

// Format is the table of all keys of a document.
var Format = Type{Kind: kindMap, Fields: []Field{
	{Name: "name", Required: true, Type: Type{Kind: kindText, Pattern: `[A-Za-z0-9][A-Za-z0-9._-]{0,99}`, Example: "nightly"},
		Doc: "The name of the workflow: letters, digits, dots, dashes and underscores, 100 characters at most."},
	{Name: "description", Type: Type{Kind: kindText, Max: 4096, Example: "Review the changes of a day."},
		Doc: "A text for people."},
	{Name: "input", Type: schemaType, Doc: "The JSON Schema (2020-12, without `$ref`) of the input. An execution " +
		"whose input does not match it is refused. A property with a `default` that the input lacks gets the default."},
	{Name: "defaults", Type: Type{Kind: kindMap, Fields: shared}, Doc: "Values for all tasks that do not have the " +
		"key themselves."},
	{Name: "tasks", Required: true, Type: Type{Kind: kindList, Min: 1, Max: MaxTasks,
		Item: &Type{Kind: kindMap, Fields: taskFields}}, Doc: "The tasks, 1,000 at most. Their order has no meaning; " +
		"`needs` says what comes first."},
	{Name: "output", Type: Type{Kind: kindAny, Expression: true}, Doc: "The output of the execution. Every text in " +
		"it may contain expressions in `${{ }}`. By default the output is the state of each task."},
	{Name: "output_schema", Type: schemaType, Doc: "The JSON Schema of the output. If the output does not match it, " +
		"the execution fails."},
	{Name: "on", Type: onType, Doc: "The schedules and webhooks that start executions of the document when it is " +
		"stored. `belay run FILE` and submissions of a text ignore them."},
	{Name: "notify", Type: Type{Kind: kindList, Max: belay.MaxNotifications, Item: &notifyType},
		Doc: "HTTP requests that report the end of each execution of the document, in addition to those of its " +
			"submission; 10 at most in all."},
}}

// notifyType is the type of one notification. Its texts may contain references to secrets, and no expressions:
// belay.CheckNotifications checks them. No message shows these texts, because they may be credentials.
var notifyType = Type{Kind: kindMap, Fields: []Field{
	{Name: "url", Required: true, Type: templateText("https://ci.example.org/hooks/belay"),
		Doc: "An `http` or `https` URL. A reference such as `${{ secrets.NAME }}` may be the whole URL, or a part of " +
			"its path or query."},
	{Name: "on", Default: "[failed]", Type: Type{Kind: kindList, Min: 1, Max: 3, Item: &Type{
		Kind: kindText, Enum: []string{"failed", "succeeded", "cancelled"}}}, Doc: "The ends that are reported."},
	{Name: "format", Default: "event", Type: Type{Kind: kindText, Enum: []string{"event", "slack"}},
		Doc: "The form of the body: `event`, or `slack` for incoming webhooks of Slack."},
	{Name: "secret", Type: templateText("${{ secrets.CI_HOOK }}"), Doc: "A reference to the secret that signs the " +
		"request, as Standard Webhooks describes."},
}}

var httpType = Type{Kind: kindMap, Fields: []Field{
	{Name: "url", Required: true, Type: templateText("https://example.com/hook"), Doc: "The URL."},
	{Name: "method", Type: templateText("POST"), Default: "POST with a body, otherwise GET", Doc: "The method."},
	{Name: "query", Type: Type{Kind: kindMap, Item: &Type{Kind: kindAny}, Expression: true},
		Doc: "Parameters that are added to the query of the URL."},
	{Name: "headers", Type: Type{Kind: kindMap, Item: &Type{Kind: kindText, Expression: true, Max: MaxSize}},
		Doc: "The headers of the request."},
	{Name: "auth", Type: Type{Kind: kindMap, Item: &Type{Kind: kindAny}},
		Doc: "The credential: `{bearer: TOKEN}`, or `{basic: {user: NAME, password: PASSWORD}}`."},
	{Name: "body", Type: Type{Kind: kindAny, Expression: true},
		Doc: "The body: a text is sent as it is, any other value as JSON."},
	{Name: "form", Type: Type{Kind: kindMap, Item: &Type{Kind: kindAny}, Expression: true},
		Doc: "The body as a web form, instead of `body`."},
	{Name: "body_base64", Type: templateText("aGVsbG8="), Doc: "The body as bytes, instead of `body`."},
	{Name: "body_secrets", Type: Type{Kind: kindList, Item: &Type{Kind: kindText, Max: 100, Example: "TOKEN"}},
		Doc: "The secrets to which `body` or `form` may refer."},
	{Name: "signing_secret", Type: templateText("${{ secrets.SIGNING }}"),
		Doc: "The secret that signs the body, as Standard Webhooks describes."},
	{Name: "expect", Type: Type{Kind: kindAny}, Default: "2xx", Doc: "The statuses of a success: a status, a class " +
		"such as `2xx`, a range such as `200-299`, or a list of these."},
	{Name: "retry_on", Type: Type{Kind: kindAny}, Default: "408, 425, 429, 500, 502 to 504",
		Doc: "The statuses after which the request is tried again."},
	{Name: "timeout", Type: duration("30s"), Default: "30s", Doc: "The longest time of one attempt."},
	{Name: "max_response_bytes", Type: Type{Kind: kindNumber, Min: 1, Max: 768 << 10, Example: "1000"},
		Default: "262144", Doc: "The size up to which the body of the answer is kept."},
	{Name: "max_redirects", Type: Type{Kind: kindNumber, Min: 0, Max: 20, Example: "0"}, Default: "5",
		Doc: "How many redirects are followed."},
	{Name: "idempotency_key_header", Type: Type{Kind: kindText, Max: belay.MaxName, Example: "Idempotency-Key"},
		Default: "Idempotency-Key", Doc: "The header with a key that is the same in every attempt; empty for none."},
}}

// Kind is a built-in kind of tasks.
type Kind struct {
	Name string
	Doc  string
	With Type
	// Inline says that the task is a wait of the execution of the document itself; it has no execution of its own.
	Inline bool
}

// Kinds are the built-in kinds of tasks.
var Kinds = []Kind{
	{Name: "command", Doc: "Runs a command in a workspace of its own, as `belay run` does. Its output has " +
		"`exit_code`, and `stdout` if `capture` is set. An exit code other than 0 is a failure.",
		With: Type{Kind: kindMap, Fields: []Field{
			{Name: "run", Required: true, Type: Type{Kind: kindText, Example: "make test", Expression: true, Min: 1,
				Max: MaxSize,
				Or: []Type{{Kind: kindList, Min: 1, Item: &Type{Kind: kindText, Expression: true, Max: MaxSize,
					Example: "make"}}}},
				Doc: "A text that `sh -c` runs, or a list with the program and its arguments. Use the list, or " +
					"`env`, for values of others: `sh` would run what they contain."},
			{Name: "repo", Type: templateText("https://example.com/repo.git"), Doc: "The repository to clone; by default the workspace is empty."},
			{Name: "ref", Type: templateText("main"), Doc: "The branch, tag or commit."},
			{Name: "env", Type: Type{Kind: kindList, Item: &Type{Kind: kindText, Max: belay.MaxName, Example: "TOKEN"}},
				Doc: "Names of environment variables of the worker that the command gets. Their values are not " +
					"stored."},
			{Name: "grace", Type: duration("10s"), Default: "10s", Doc: "The time between SIGTERM and SIGKILL."},
			{Name: "capture", Type: Type{Kind: kindText, Enum: []string{"text", "lines", "json"}},
				Doc: "Puts the standard output, of at most 256 KiB, into the output of the task as `stdout`: as a " +
					"text without the last line break, as a list of lines, or as the value that its JSON describes."},
		}}},
	{Name: "agent", Doc: "Gives a prompt to the agent that the configuration of the worker names. Its output has " +
		"`text`.",
		With: Type{Kind: kindMap, Fields: []Field{
			{Name: "prompt", Required: true, Type: templateText("Review the diff."), Doc: "The prompt."},
			{Name: "repo", Type: templateText("https://example.com/repo.git"), Doc: "The repository to clone."},
			{Name: "ref", Type: templateText("main"), Doc: "The branch, tag or commit."},
			{Name: "push", Type: Type{Kind: kindMap, Fields: []Field{
				{Name: "branch", Type: templateText("belay/{{job}}"), Default: "belay/{{job}}",
					Doc: "The name of the branch; {{job}} stands for the id of the job."},
				{Name: "message", Type: templateText("Update the notes"), Default: "the first line of the prompt",
					Doc: "The message of the commit with the uncommitted changes."},
				{Name: "approve", Type: Type{Kind: kindBool}, Default: "false", Doc: "Ask a person before the push."},
			}}, Doc: "Pushes the work to a branch when the agent has succeeded, if `agent.push` allows it."},
		}}},
	{Name: "http", With: httpType, Doc: "Sends an HTTP request. Its output has `status`, `headers` and `body`. A " +
		"text may refer to a secret with `${{ secrets.NAME }}`; the configuration of the worker says which secrets a " +
		"workflow may use."},
	{Name: "workflow", Doc: "Starts an execution of another workflow or of a stored document and waits for its end. " +
		"Its output is the output of that execution. It needs `name` or `document`.",
		With: Type{Kind: kindMap, OneOf: []string{"name", "document"}, Fields: []Field{
			{Name: "name", Type: templateText("invoice"), Doc: "The name of a workflow that workers have registered."},
			{Name: "document", Type: templateText("nightly"), Doc: "The name of a stored document, instead of `name`; " +
				"`nightly@3` is its version 3. Without a version, the task gets the newest version that is not deprecated " +
				"when it starts, and keeps it; all items of a `foreach` get the same version."},
			{Name: "version", Type: templateText("2"), Doc: "The version of the workflow."},
			{Name: "input", Type: Type{Kind: kindAny, Expression: true}, Doc: "The input of the execution."},
		}}},
	{Name: "approval", Inline: true, Doc: "Waits until a person decides: `belay signal ID TASK --payload " +
		"'{\"approved\": true}'`. Its output is the payload of the signal. If `approved` is not true, the task fails.",
		With: Type{Kind: kindMap, Fields: []Field{
			{Name: "message", Type: templateText("Deploy?"), Doc: "The question, which the history shows."},
			{Name: "signal", Type: text("deploy_ok"), Default: "the id of the task", Doc: "The name of the signal."},
		}}},
	{Name: "signal", Inline: true, Doc: "Waits for a signal to the execution. Its output is the payload of the signal.",
		With: Type{Kind: kindMap, Fields: []Field{
			{Name: "name", Type: text("paid"), Default: "the id of the task", Doc: "The name of the signal."},
		}}},
	{Name: "sleep", Inline: true, Doc: "Waits for a time. It needs no worker meanwhile.",
		With: Type{Kind: kindMap, Fields: []Field{
			{Name: "for", Required: true, Doc: "The time to wait.",
				Type: Type{Kind: kindDuration, Example: "1h", Expression: true}},
		}}},
}

// kindOf returns the built-in kind of a name; nil if there is none.
func kindOf(name string) *Kind {
	for i := range Kinds {
		if Kinds[i].Name == name {
			return &Kinds[i]
		}
	}
	return nil
}
