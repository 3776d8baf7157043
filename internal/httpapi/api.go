package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// api is the API on one Backend.
type api struct {
	b      belay.Backend
	o      Options
	gate   *gate
	mux    *http.ServeMux
	routes map[string]*route // the routes by their patterns
	// described has the functions that describe the routes in the OpenAPI document, in order.
	described []func(*document)
	schemas   *registry // the schemas of the routes that huma serves
	feeds     feeds
	lives     lives
	outage    outage
	bodies    *budget
	strange   *budget // for bodies of requests without a key
	// awaiting counts the executions for which POST /v1/await waits.
	awaiting     awaiting
	statusFrames statusFrames
	hooks        hooks
	// foreign says that there are routes in the format of another API, whose clients also request addresses below /v1/
	// that have no route.
	foreign bool
}

// strangeShare is the part of the memory for bodies that requests without a key get, in addition.
const strangeShare = 8

// New returns a handler that serves the API on a Backend. The handler also serves the routes at the
// root: health, metrics and pages.
func New(b belay.Backend, o Options) http.Handler {
	o = o.withDefaults()
	b = Admitting(b, o.Admit)
	a := &api{
		b: b, o: o, gate: newGate(o), bodies: newBudget(o.Bodies), strange: newBudget(o.Bodies / strangeShare),
		mux:    http.NewServeMux(),
		routes: make(map[string]*route), schemas: &registry{all: newRegistry()},
	}
	a.hooks = hooks{a, o.Hooks}
	a.feeds = feeds{backend: b, stopping: o.Stopping, open: make(map[feedKey]*feed)}
	a.executions()
	a.await()
	a.actions()
	a.history()
	a.states()
	a.streamTokens()
	a.logs()
	a.owners()
	a.runs()
	a.workers()
	a.batch()
	a.keyring()
	a.audit()
	a.usage()
	a.gates()
	a.library()
	a.schedules()
	a.webhooks()
	a.targets()
	a.receive()
	a.cloudEvents()
	a.deadLetters()
	a.bulk()
	a.tasks()
	a.extra()
	a.operations()
	return a
}

// configureHuma sets the options that huma keeps in package variables, for the whole process. No
// other package of Belay uses huma.
var configureHuma = sync.OnceFunc(func() {
	huma.DefaultArrayNullable = false
	huma.ValidateStrictCasing = true
	huma.NewError = humaError
	huma.NewErrorWithContext = func(c huma.Context, status int, message string, errs ...error) huma.StatusError {
		err := humaError(status, message, errs...)
		if f, ok := err.(*refusal); ok && c != nil {
			f.problem.RequestID = RequestID(c.Context())
		}
		return err
	}
})

// ServeHTTP answers a request. It refuses a request that is addressed to another host or comes from
// a page of another site. If a handler panics, it answers that an error inside the server occurred.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rep := &reply{ResponseWriter: w, timeout: a.o.WriteTimeout}
	rep.foreign = a.foreign && strings.HasPrefix(r.URL.Path, "/v1/")
	if r.ContentLength != 0 {
		rep.unread = a.o.BodyTimeout
	}
	if a.o.Requests != nil {
		began := time.Now()
		defer func() { a.count(rep, r, began) }()
	}
	defer a.recover(rep, r)
	h := w.Header()
	h.Set(wire.HeaderRequest, requestID(r))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	if len(a.gate.origins) > 0 {
		h.Add("Vary", "Origin")
	}
	if err := a.gate.address(r); err != nil {
		rep.routed = true
		refuse(err).write(rep)
		return
	}
	if a.gate.cors(h, r) {
		rep.routed = true
		a.preflight(rep, r)
		return
	}
	if a.astray(r) {
		rep.routed = true
		a.o.Pages.ServeHTTP(rep, nowhere(r))
		return
	}
	a.mux.ServeHTTP(rep, r)
}

// count calls Options.Requests after the answer to a request. It counts all paths without a route
// as one route, so that callers cannot create series of metrics.
func (a *api) count(rep *reply, r *http.Request, began time.Time) {
	const none = "none"
	rt := a.routes[r.Pattern]
	switch {
	case rep.status == 0: // the connection was cut off before there was an answer
	case rt == nil:
		a.o.Requests(none, none, rep.status, 0)
	case rt.waits() || strings.HasSuffix(rt.path, "/claim"):
		a.o.Requests(rt.method, rt.path, rep.status, 0)
	default:
		a.o.Requests(rt.method, rt.path, rep.status, max(time.Since(began), 1))
	}
}

// preflight answers a CORS preflight, the request by which a browser asks which requests a page of a listed origin may
// send.
func (a *api) preflight(w http.ResponseWriter, r *http.Request) {
	var in admitted
	if err := a.gate.limits.take(r, remote(r), &in); err != nil {
		refuse(err).write(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// recover answers the request of a handler that panicked, and logs the panic. If the client has not
// accepted the answer, or the handler has cut the answer off on purpose, recover logs nothing and
// panics with http.ErrAbortHandler, so that net/http closes the connection.
func (a *api) recover(w *reply, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); w.cut || ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	a.o.Log.ErrorContext(r.Context(), "belay: a request broke", "route", r.Pattern, "request",
		w.Header().Get(wire.HeaderRequest), "panic", p, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // half an answer must not look complete
	}
	w.routed = true
	refuse(errBroken).write(w)
}

// errBroken is the answer to a request whose handler panicked; only the log has the details.
var errBroken = &belay.Error{Code: belay.CodeInternal, Message: "an error inside the server; see its log"}

// pathExecution returns the attribute of a log line that names the execution in the path of the request; it is empty if
// there is none.
func pathExecution(ctx context.Context) slog.Attr {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok && in.of != "" {
		return slog.String("execution", in.of)
	}
	return slog.Attr{}
}

// failed logs a refusal: as an error if the server is at fault, and else at the level debug.
func (a *api) failed(ctx context.Context, rt *route, f *refusal) {
	a.away(ctx, f.cause)
	f.problem.RequestID = RequestID(ctx)
	about := []any{"route", rt.pattern(), "request", f.problem.RequestID, pathExecution(ctx)}
	switch {
	case f.problem.Status >= 500 && f.problem.Code != belay.CodeUnavailable:
		a.o.Log.ErrorContext(ctx, "belay: a request failed", append(about, "error", f.cause)...)
	case a.o.Log.Enabled(ctx, slog.LevelDebug):
		a.o.Log.DebugContext(ctx, "belay: refused", append(about, "code", f.problem.Code, "why", f.problem.Detail)...)
	}
}
