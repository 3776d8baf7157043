package agentapi

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
)

// Workflow is the name of the workflow that jobs are executions of.
const Workflow = agent.Prompted

// Options of the service.
type Options struct {
	// Setup is how agents are run.
	Setup agent.Setup
	// Capacity is how many jobs this process runs itself at the same time, and
	// QueueDepth how many may run or wait on all that share the store.
	Capacity, QueueDepth int
	// JobTTL is how long after its end a job is answered for; 0 for as long as
	// its execution is kept.
	JobTTL time.Duration
	// ChatTimeout is how long a chat may take, its wait for a slot included.
	ChatTimeout time.Duration
	// Policy is that of jobs.
	Policy belay.Policy
	// Model is the name of the one model; any other is accepted as well.
	Model string

	// Log gets what went wrong inside; nil means slog.Default().
	Log *slog.Logger
	// Ping is how often a stream without news says that it is alive, and
	// WriteTimeout how long a client may take to accept what is written. 0
	// means 15 s and 10 s.
	Ping, WriteTimeout time.Duration
	// Reading is the room of readers of logs, which others may share; nil makes one.
	Reading *httpapi.Reading
	// Now is the clock by which jobs are forgotten; nil means time.Now.
	Now func() time.Time
}

// Service answers for agents on one Backend.
type Service struct {
	b       belay.Client
	o       Options
	backlog backlog
}

// New makes the service.
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

// door is the service behind one listener.
type door struct {
	*Service
	stopping <-chan struct{} // closed when the listener begins to stop
}

// Routes are the service's, for a listener that stops when stopping is closed.
func (s *Service) Routes(stopping <-chan struct{}) []httpapi.Route {
	d := &door{s, stopping}
	read, submit := []belay.Scope{belay.ScopeRead, belay.ScopeSubmit}, []belay.Scope{belay.ScopeSubmit}
	cancel := []belay.Scope{belay.ScopeSubmit, belay.ScopeOperate}
	job, accepted := reflect.TypeFor[Job](), reflect.TypeFor[Accepted]()
	routes := []httpapi.Route{
		{
			ID: "execute", Method: http.MethodPost, Path: "/execute", Summary: "Hand a prompt to the agent",
			Scopes: submit,
			Doc:    "An Idempotency-Key makes a repeat find the first job.",
			Body:   reflect.TypeFor[Execute](), Answer: accepted, Status: http.StatusAccepted,
			Also: []int{http.StatusConflict}, Handler: d.execute,
		},
		{
			ID: "getJob", Method: http.MethodGet, Path: "/jobs/{id}", Summary: "Read a job, or wait for its end",
			Scopes: read,
			Doc: "With wait=30 it answers when the job has ended, or after so many seconds, 60 at most. " +
				"Accept: text/event-stream follows its output.",
			Answer: job, Stream: true, Handler: d.job,
		},
		{
			ID: "followJob", Method: http.MethodGet, Path: "/jobs/{id}/log", Summary: "Follow the output of a job",
			Scopes: read,
			Doc:    "Events output, progress and end. Last-Event-ID goes on from there.", Stream: true,
			Handler: d.follow,
		},
		{
			ID: "cancelJob", Method: http.MethodPost, Path: "/jobs/{id}/cancel", Summary: "Cancel a job",
			Scopes: cancel,
			Answer: accepted, Status: http.StatusAccepted, Also: []int{http.StatusConflict}, Handler: d.cancel,
		},
		{
			ID: "deleteJob", Method: http.MethodDelete, Path: "/jobs/{id}", Summary: "Cancel a job", Scopes: cancel,
			Answer: accepted, Status: http.StatusAccepted, Also: []int{http.StatusConflict}, Handler: d.cancel,
		},
		{
			ID: "agentHealth", Method: http.MethodGet, Path: "/health", Summary: "How busy the agents are",
			Answer: reflect.TypeFor[AgentHealth](), Handler: d.health,
		},
		{
			ID: "chat", Method: http.MethodPost, Path: "/v1/chat/completions", Summary: "Chat with the agent",
			Scopes: submit,
			Doc: "As OpenAI's. Any model is accepted. The last of several messages is what is asked, those " +
				"before it are what was said.",
			Body: reflect.TypeFor[ChatRequest](), Answer: reflect.TypeFor[Completion](), Stream: true,
			Refuse: refuseChat, Handler: d.chat,
		},
		{
			ID: "listModels", Method: http.MethodGet, Path: "/v1/models", Summary: "List the models", Scopes: read,
			Answer: reflect.TypeFor[Models](), Refuse: refuseChat, Handler: d.models,
		},
		{
			ID: "getModel", Method: http.MethodGet, Path: "/v1/models/{model}", Summary: "Read the model", Scopes: read,
			Answer: reflect.TypeFor[Model](), Refuse: refuseChat, Handler: d.model,
		},
	}
	for i := range routes {
		routes[i].Tag = "agents"
	}
	return routes
}

// waiting is a context for what may wait: it ends when the listener stops.
func (d *door) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
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

// stops reports whether the listener stops.
func (d *door) stops() bool {
	select {
	case <-d.stopping:
		return true
	default:
		return false
	}
}
