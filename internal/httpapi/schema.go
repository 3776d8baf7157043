package httpapi

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Each type below gives the schema of a type of package belay in the OpenAPI document: a string
// with a pattern or with a list of allowed words. They are separate types so that package belay
// does not depend on OpenAPI.
type (
	executionID    struct{}
	workerID       struct{}
	runID          struct{}
	keyID          struct{}
	leaseID        struct{}
	opID           struct{}
	token          struct{}
	duration       struct{}
	state          struct{}
	outcome        struct{}
	class          struct{}
	checkpointKind struct{}
	workerState    struct{}
	trigger        struct{}
	onLost         struct{}
	onExpired      struct{}
	onNoWorker     struct{}
	scope          struct{}
	code           struct{}
	gateID         struct{}
	whenFull       struct{}
	withoutID      struct{}
	resourceState  struct{}
	failedBy       struct{}
	cost           struct{}
	usd            struct{}
)

func (executionID) Schema(huma.Registry) *huma.Schema { return idSchema("ex_", digits16) }
func (workerID) Schema(huma.Registry) *huma.Schema    { return idSchema("wk_", digits16) }
func (runID) Schema(huma.Registry) *huma.Schema       { return idSchema("run_", `[0-3]`+digit+`{38}`) }
func (keyID) Schema(huma.Registry) *huma.Schema       { return idSchema("key_", digits16) }
func (leaseID) Schema(huma.Registry) *huma.Schema     { return idSchema("ls_", digits16+digits16) }
func (opID) Schema(huma.Registry) *huma.Schema        { return idSchema("", digits16) }
func (token) Schema(huma.Registry) *huma.Schema {
	least, most := 0.0, float64(1<<53-1)
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &least, Maximum: &most}
}

// A schema with multipleOf 0.0001 would be shorter, but validators that divide binary numbers refuse
// some multiples, such as 0.0003.
func (cost) Schema(huma.Registry) *huma.Schema {
	least := 0.0
	return &huma.Schema{
		Type: huma.TypeNumber, Minimum: &least, Examples: []any{0.25},
		Description: "A number of tokens with at most four decimals, kept exactly; at most " +
			belay.MaxCost.String() + ".",
	}
}

func (usd) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeNumber, Examples: []any{0.0125},
		Description: "A number of US dollars with at most nine decimals. That of a correction may be negative.",
	}
}

func (duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Pattern: `^-?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`,
		PatternDescription: `duration like "90s" or "1h30m"`, Examples: []any{"90s"},
	}
}

func (state) Schema(huma.Registry) *huma.Schema          { return words[belay.State](1, 8) }
func (outcome) Schema(huma.Registry) *huma.Schema        { return words[belay.Outcome](1, 8) }
func (class) Schema(huma.Registry) *huma.Schema          { return words[belay.Class](1, 5) }
func (failedBy) Schema(huma.Registry) *huma.Schema       { return words[belay.FailedBy](1, 4) }
func (checkpointKind) Schema(huma.Registry) *huma.Schema { return words[belay.CheckpointKind](1, 3) }
func (workerState) Schema(huma.Registry) *huma.Schema    { return words[belay.WorkerState](1, 7) }

func (trigger) Schema(huma.Registry) *huma.Schema {
	return listed(belay.TriggerManual, belay.TriggerParent, belay.TriggerCron, belay.TriggerEvent, belay.TriggerWebhook,
		belay.TriggerQueue, belay.TriggerSwap, belay.TriggerNotification)
}
func (onLost) Schema(huma.Registry) *huma.Schema { return listed(belay.Requeue, belay.Fail) }
func (onNoWorker) Schema(huma.Registry) *huma.Schema {
	return listed(belay.WaitForWorker, belay.FailNoWorker)
}
func (onExpired) Schema(huma.Registry) *huma.Schema {
	return listed(belay.Reschedule, belay.FailExpired)
}
func (scope) Schema(huma.Registry) *huma.Schema {
	return listed(belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker, belay.ScopeAdmin)
}

func (code) Schema(huma.Registry) *huma.Schema {
	return listed(
		belay.CodeMalformed, belay.CodeInvalid, belay.CodeLeaseLost, belay.CodeLeaseHeld, belay.CodeIdempotencyMismatch,
		belay.CodeQueueFull, belay.CodeNoWorker, belay.CodeCircuitOpen, belay.CodeSwapInProgress,
		belay.CodePayloadTooLarge,
		belay.CodeNotFound, belay.CodeConflict, belay.CodeUnauthorized, belay.CodeForbidden, belay.CodeTokenRequired,
		belay.CodeCursorExpired, belay.CodeRateLimited, belay.CodeUnavailable, belay.CodeInternal,
	)
}

func (gateID) Schema(huma.Registry) *huma.Schema {
	most := belay.MaxName + len(belay.GateWorkflow) + 1
	return &huma.Schema{
		Type: huma.TypeString, Pattern: `^(limit|rate|target|queue|workflow|resource):` + printable, MaxLength: &most,
		PatternDescription: "gate like queue:default: a kind (limit, rate, target, queue, workflow or resource), a colon and a name",
		Examples:           []any{"queue:default"},
	}
}

func (resourceState) Schema(huma.Registry) *huma.Schema {
	return listed(belay.ResourceIdle, belay.ResourceReady, belay.ResourceDraining, belay.ResourceSwapping,
		belay.ResourceFailed)
}

func (withoutID) Schema(huma.Registry) *huma.Schema {
	return listed(belay.RefuseWithoutID, belay.HashWithoutID)
}

func (whenFull) Schema(huma.Registry) *huma.Schema {
	return listed(belay.WaitWhenFull, belay.RejectWhenFull, belay.ReplaceWhenFull)
}

// printable is the pattern of names, which have no control characters.
const printable = `[^\x00-\x1F\x7F-\x9F]+$`

var standIns = map[reflect.Type]reflect.Type{
	reflect.TypeFor[belay.ExecutionID]():    reflect.TypeFor[executionID](),
	reflect.TypeFor[belay.WorkerID]():       reflect.TypeFor[workerID](),
	reflect.TypeFor[belay.RunID]():          reflect.TypeFor[runID](),
	reflect.TypeFor[belay.KeyID]():          reflect.TypeFor[keyID](),
	reflect.TypeFor[wire.LeaseID]():         reflect.TypeFor[leaseID](),
	reflect.TypeFor[belay.OpID]():           reflect.TypeFor[opID](),
	reflect.TypeFor[belay.Token]():          reflect.TypeFor[token](),
	reflect.TypeFor[belay.Duration]():       reflect.TypeFor[duration](),
	reflect.TypeFor[belay.Cost]():           reflect.TypeFor[cost](),
	reflect.TypeFor[belay.USD]():            reflect.TypeFor[usd](),
	reflect.TypeFor[belay.State]():          reflect.TypeFor[state](),
	reflect.TypeFor[belay.Outcome]():        reflect.TypeFor[outcome](),
	reflect.TypeFor[belay.Class]():          reflect.TypeFor[class](),
	reflect.TypeFor[belay.FailedBy]():       reflect.TypeFor[failedBy](),
	reflect.TypeFor[belay.CheckpointKind](): reflect.TypeFor[checkpointKind](),
	reflect.TypeFor[belay.WorkerState]():    reflect.TypeFor[workerState](),
	reflect.TypeFor[belay.Trigger]():        reflect.TypeFor[trigger](),
	reflect.TypeFor[belay.ResourceState]():  reflect.TypeFor[resourceState](),
	reflect.TypeFor[belay.OnLost]():         reflect.TypeFor[onLost](),
	reflect.TypeFor[belay.OnExpired]():      reflect.TypeFor[onExpired](),
	reflect.TypeFor[belay.OnNoWorker]():     reflect.TypeFor[onNoWorker](),
	reflect.TypeFor[belay.Scope]():          reflect.TypeFor[scope](),
	reflect.TypeFor[belay.Code]():           reflect.TypeFor[code](),
	reflect.TypeFor[belay.Policy]():         reflect.TypeFor[wire.Policy](),
	reflect.TypeFor[belay.Worker]():         reflect.TypeFor[wire.Worker](),
	reflect.TypeFor[belay.Session]():        reflect.TypeFor[wire.Session](),
	reflect.TypeFor[belay.GatePace]():       reflect.TypeFor[wire.GatePace](),
	reflect.TypeFor[belay.GateID]():         reflect.TypeFor[gateID](),
	reflect.TypeFor[belay.WhenFull]():       reflect.TypeFor[whenFull](),
	reflect.TypeFor[belay.WithoutID]():      reflect.TypeFor[withoutID](),
	reflect.TypeFor[belay.Notification]():   reflect.TypeFor[wire.Notification](),
	reflect.TypeFor[refusal]():              reflect.TypeFor[wire.Problem](),

	reflect.TypeFor[belay.GateResourceInfo](): reflect.TypeFor[wire.GateResourceInfo](),
}

// The digits of ids. Each digit has five bits; the first digit has only the bits that the id's
// bytes need. The parser of package belay refuses an id with a larger first digit.
const (
	digit    = `[0-9a-hjkmnp-tv-z]`
	digits16 = `[0-7]` + digit + `{25}`
)

func idSchema(prefix, digits string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: "^" + prefix + digits + "$"}
}

// words is the schema of an enumeration: the texts of its values from first to last.
func words[T interface {
	~uint8
	fmt.Stringer
}](first, last T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for v := first; v <= last; v++ {
		s.Enum = append(s.Enum, v.String())
	}
	return s
}

func listed[T ~string](values ...T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// named is the name of a type's schema. The operation wire.Signal of a batch gets another name than
// its Go type, because belay.Signal has the name Signal.
func named(t reflect.Type, hint string) string {
	switch t {
	case reflect.TypeFor[wire.Signal](), reflect.TypeFor[*wire.Signal]():
		return "SignalOp"
	case reflect.TypeFor[belay.RunRecord]():
		return "Run"
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// newRegistry returns an empty registry that knows the names and stand-ins of this package's types.
func newRegistry() huma.Registry {
	r := huma.NewMapRegistry("#/components/schemas/", named)
	for t, alias := range standIns {
		r.RegisterTypeAlias(t, alias)
	}
	return r
}

// config is the OpenAPI document before its routes.
func config(schemas huma.Registry) huma.Config {
	format := huma.Format{Marshal: encode, Unmarshal: unmarshal}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Belay", Version: "1",
				Description: "Durable executions with one owner at a time. Times are RFC 3339; fields that end in " +
					"_ms are milliseconds. A duration that is written as text, such as 90s, has its milliseconds " +
					"beside it, in the field of the same name with _ms: answers have both, and a request gives " +
					"either, or both if they are equal. A field that is 0 counts as not given. Every refusal is a problem (RFC 9457) with a stable code; refusals of " +
					"chats and responses have the form of OpenAI's API. A stream of server-sent events " +
					"(text/event-stream) is described as an array whose items are its events, with their data parsed as JSON.",
				Contact: &huma.Contact{Name: "Belay", URL: "https://github.com/belaydev/belay"},
				License: &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: "/", Description: "The server that this document comes from."}},
			Tags:    tags,
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{"key": {
					Type: "http", Scheme: "bearer",
					Description: "A key: bly_…. A server without keys needs none. x-scopes of an operation " +
						"lists scopes; the key needs one of them.",
				}},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json", RejectUnknownQueryParameters: true,
	}
}

var tags = []*huma.Tag{
	{Name: "executions", Description: "Submit and watch executions."},
	{Name: "actions", Description: "Actions of an operator on an execution."},
	{Name: "owners", Description: "Own one execution by a lock, without a worker."},
	{Name: "runs", Description: "A run is one attempt at an execution, by its owner."},
	{Name: "workers", Description: "Sessions that claim executions."},
	{Name: "gates", Description: "Limits, rates, circuit breakers and pauses, which decide when work may start."},
	{Name: "dead letters", Description: "Executions that failed for good: read, repaired, run again."},
	{Name: "documents", Description: "Workflows without code: stored with versions, read by task, repaired."},
	{Name: "schedules", Description: "Executions that start at regular times."},
	{Name: "webhooks", Description: "Executions that signed requests of other services start."},
	{Name: "notifications", Description: "Targets that learn of ends of executions, and of alerts."},
	{Name: "keys", Description: "Keys of callers, and their scopes."},
	{Name: "agents", Description: "Prompts, jobs and chats of agents, on a server that runs agents."},
	{Name: "operations", Description: "The server itself."},
}

// unmarshal is decode in the form that huma needs. Its error names the field in the text, because
// huma does not read the details of a refusal.
func unmarshal(data []byte, v any) error {
	err := decode(data, v)
	if err == nil {
		return nil
	}
	for _, d := range refuse(err).problem.Errors {
		return fmt.Errorf("%s: %s", d.Location, d.Message)
	}
	return err
}

// problemStatuses are all statuses of refusals.
var problemStatuses = []int{400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 415, 422, 423, 428, 429, 500, 503}

func problemName(status int) string {
	name := ""
	for _, r := range http.StatusText(status) {
		if r != ' ' && r != '-' {
			name += string(r)
		}
	}
	return name
}

// problems are the responses of refusals, which all routes share.
func problems(r huma.Registry) map[string]*huma.Response {
	out := make(map[string]*huma.Response)
	for _, status := range problemStatuses {
		out[problemName(status)] = refusalResponse(status, map[string]*huma.MediaType{
			wire.ProblemType: {Schema: r.Schema(reflect.TypeFor[wire.Problem](), true, "")},
		})
	}
	return out
}

// refusalResponse is the response of a refusal with a status, and the headers that it always has.
func refusalResponse(status int, content map[string]*huma.MediaType) *huma.Response {
	response := &huma.Response{
		Description: http.StatusText(status), Headers: make(map[string]*huma.Param), Content: content,
	}
	header := func(name, doc, kind string) {
		response.Headers[name] = &huma.Param{Description: doc, Required: true, Schema: &huma.Schema{Type: kind}}
	}
	switch status {
	case http.StatusConflict, http.StatusLocked, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		header("Retry-After", "In how many seconds to repeat the request.", huma.TypeInteger)
	case http.StatusUnauthorized:
		header("WWW-Authenticate", "How the request must name its key.", huma.TypeString)
	case http.StatusForbidden:
		response.Headers["WWW-Authenticate"] = &huma.Param{
			Description: "The scope that the key lacks.", Schema: &huma.Schema{Type: huma.TypeString},
		}
	case http.StatusMethodNotAllowed:
		header("Allow", "The methods that the address accepts.", huma.TypeString)
	}
	return response
}
