package agentapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
)

// Workflow is the name of the workflow of every job.
const Workflow = agent.Prompted

// Options are the settings of the service.
type Options struct {
	// Setup is the configuration of agents.
	Setup agent.Setup
	// Capacity is the number of jobs that this process runs at the same time. QueueDepth is the
	// maximum number of jobs that run or wait, counted over all servers that share the store.
	Capacity, QueueDepth int
	// JobTTL is how long a job can be read after its end; 0 means as long as the store has its
	// execution.
	JobTTL time.Duration
	// ChatTimeout is the time limit of a chat, including its wait for a slot.
	ChatTimeout time.Duration
	// Policy is the retry and timeout policy of jobs.
	Policy belay.Policy
	// Model is the name of the only model; a chat may use any name.
	Model string

	// Log receives internal errors; nil means slog.Default().
	Log *slog.Logger
	// Ping is the interval of pings in an idle stream. WriteTimeout is the time in which a client
	// must accept each write. 0 means 15 s for Ping and 10 s for WriteTimeout.
	Ping, WriteTimeout time.Duration
	// Reading is the memory budget for reading logs. Other readers may share the budget; nil means
	// that the service makes a budget of its own.
	Reading *httpapi.Reading
	// Now is the clock for JobTTL; nil means time.Now.
	Now func() time.Time
}

// Service serves agents over one Backend.
type Service struct {
	b       belay.Client
	o       Options
	backlog backlog
}

// New makes a Service.
func New(b belay.Client, o Options) *Service {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Ping == 0 {
		o.Ping = 15 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.Reading == nil {
		o.Reading = httpapi.NewReading()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{b: b, o: o, backlog: backlog{b: b, now: o.Now, own: o.Capacity}}
}

// endpoint handles the requests of one listener for the Service.
type endpoint struct {
	*Service
	stopping <-chan struct{} // closed when the listener begins to stop
}

// Routes returns the routes of the service for one listener. When stopping is closed, a request
// that waits for a job returns without waiting any longer.
func (s *Service) Routes(stopping <-chan struct{}) []httpapi.Route {
	d := &endpoint{s, stopping}
	read, submit := []belay.Scope{belay.ScopeRead, belay.ScopeSubmit}, []belay.Scope{belay.ScopeSubmit}
	cancel := []belay.Scope{belay.ScopeSubmit, belay.ScopeOperate}
	job, accepted := reflect.TypeFor[Job](), reflect.TypeFor[Accepted]()
	const (
		position = `^[0-9]+(\.[0-9]+){2}$`
		final    = `^[0-9]+(\.[0-9]+){3}$`
		over     = "The job has ended, and Last-Event-ID is the id of its last event: there is nothing to ask for again."
	)
	log := []httpapi.Event{
		{Schema: "OutputEvent", Name: "output", ID: position, Data: reflect.TypeFor[Output]()},
		{Schema: "ProgressEvent", Name: "progress", ID: position, Data: reflect.TypeFor[json.RawMessage]()},
		{Schema: "JobEndEvent", Name: "end", ID: final, Data: reflect.TypeFor[JobEnd]()},
	}
	routes := []httpapi.Route{
		{
			ID: "execute", Method: http.MethodPost, Path: "/execute", Summary: "Send a prompt to the agent",
			Scopes:  submit,
			Doc:     "A repeated request with the same Idempotency-Key returns the first job.",
			Request: reflect.TypeFor[executeParameters](), Headers: reflect.TypeFor[acceptedHeaders](),
			Body: reflect.TypeFor[Execute](), Answer: accepted, Status: http.StatusAccepted,
			Also: []int{http.StatusConflict}, Handler: d.execute,
		},
		{
			ID: "listJobs", Method: http.MethodGet, Path: "/jobs", Summary: "List jobs, the newest first", Scopes: read,
			Doc: "A page may have fewer jobs than the limit, or none, although further pages have some. Jobs that were " +
				"submitted by another route have no title, repo and ref.",
			Request: reflect.TypeFor[listParameters](), Answer: reflect.TypeFor[JobList](), Handler: d.list,
		},
		{
			ID: "getJob", Method: http.MethodGet, Path: "/jobs/{id}", Summary: "Read a job, or wait for its end",
			Scopes: read,
			Doc: "With wait=30 the response comes when the job has ended, or after 30 seconds; the maximum is 60. " +
				"Accept: text/event-stream follows its output.",
			Request: reflect.TypeFor[jobParameters](),
			Answer:  job, Stream: true, Events: log, Over: over, Handler: d.job,
		},
		{
			ID: "followJob", Method: http.MethodGet, Path: "/jobs/{id}/log", Summary: "Follow the output of a job",
			Scopes:  read,
			Doc:     "Events output, progress and end. Last-Event-ID resumes after that event.",
			Request: reflect.TypeFor[logParameters](),
			Stream:  true, Token: true, Events: log, Over: over, Handler: d.follow,
		},
		{
			ID: "promptJob", Method: http.MethodPost, Path: "/jobs/{id}/prompt",
			Summary: "Continue the conversation of a job",
			Scopes:  submit,
			Doc: "The new job has the work and the conversation of the job, which must have ended. A job can be " +
				"continued once: reply to the newest job of a conversation. A repeated request with the same " +
				"Idempotency-Key returns the first job.",
			Request: reflect.TypeFor[replyParameters](), Headers: reflect.TypeFor[acceptedHeaders](),
			Body: reflect.TypeFor[Reply](), Answer: accepted, Status: http.StatusAccepted,
			Also: []int{http.StatusConflict}, Handler: d.prompt,
		},
		{
			ID: "answerJob", Method: http.MethodPost, Path: "/jobs/{id}/answer",
			Summary: "Answer the question of an agent",
			Scopes:  submit,
			Doc:     "The job continues with the answer. Another answer to the same question is refused.",
			Request: reflect.TypeFor[answerParameters](), Headers: reflect.TypeFor[acceptedHeaders](),
			Body: reflect.TypeFor[HumanAnswer](), Answer: accepted, Status: http.StatusAccepted,
			Also: []int{http.StatusConflict}, Handler: d.answer,
		},
		{
			ID: "diffJob", Method: http.MethodGet, Path: "/jobs/{id}/diff",
			Summary: "Read the changes of a job as a diff", Scopes: read,
			Doc: "The difference between the commit that was checked out and the files that the agent left, committed " +
				"or not: the first MiB of it. It is empty if the agent changed nothing.",
			Request: reflect.TypeFor[diffParameters](), Headers: reflect.TypeFor[diffHeaders](), Text: diffType,
			Also: []int{http.StatusConflict}, Handler: d.diff,
		},
		{
			ID: "cancelJob", Method: http.MethodPost, Path: "/jobs/{id}/cancel", Summary: "Cancel a job",
			Scopes: cancel, Request: reflect.TypeFor[cancelParameters](),
			Answer: accepted, Status: http.StatusAccepted, Also: []int{http.StatusConflict}, Handler: d.cancel,
		},
		{
			ID: "deleteJob", Method: http.MethodDelete, Path: "/jobs/{id}", Summary: "Cancel a job", Scopes: cancel,
			Request: reflect.TypeFor[cancelParameters](),
			Answer:  accepted, Status: http.StatusAccepted, Also: []int{http.StatusConflict}, Handler: d.cancel,
		},
		{
			ID: "agentHealth", Method: http.MethodGet, Path: "/health", Summary: "Read the load of the agents",
			Answer: reflect.TypeFor[AgentHealth](), Handler: d.health,
		},
		{
			ID: "chat", Method: http.MethodPost, Path: "/v1/chat/completions", Summary: "Chat with the agent",
			Scopes: submit,
			Doc: "The request has OpenAI's format, and any model is accepted. The last message is the question; the " +
				"earlier messages are the conversation so far.",
			Request: reflect.TypeFor[executeParameters](), Headers: reflect.TypeFor[chatHeaders](),
			Body: reflect.TypeFor[ChatRequest](), Answer: reflect.TypeFor[Completion](), Stream: true,
			Events: []httpapi.Event{
				{Schema: "ChunkEvent", Data: reflect.TypeFor[Completion]()},
				{Schema: "ChatErrorEvent", Data: reflect.TypeFor[ChatError]()},
				{Schema: "DoneEvent", Word: "[DONE]"},
			},
			Refuse: refuseChat, Fault: reflect.TypeFor[ChatError](), Handler: d.complete,
		},
		{
			ID: "listModels", Method: http.MethodGet, Path: "/v1/models", Summary: "List the models", Scopes: read,
			Answer: reflect.TypeFor[Models](), Refuse: refuseChat, Fault: reflect.TypeFor[ChatError](),
			Handler: d.models,
		},
		{
			ID: "getModel", Method: http.MethodGet, Path: "/v1/models/{model}", Summary: "Read the model", Scopes: read,
			Request: reflect.TypeFor[modelParameters](),
			Answer:  reflect.TypeFor[Model](), Refuse: refuseChat, Fault: reflect.TypeFor[ChatError](),
			Handler: d.model,
		},
	}
	routes = append(routes, d.responseRoutes()...)
	for i := range routes {
		routes[i].Tag = "agents"
	}
	return routes
}

// waiting returns a context for a request that may wait. The context also ends when the listener
// stops.
func (d *endpoint) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if d.stopping == nil {
		return ctx, cancel
	}
	go func() {
		select {
		case <-d.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stops reports whether the listener is stopping.
func (d *endpoint) stops() bool {
	select {
	case <-d.stopping:
		return true
	default:
		return false
	}
}
