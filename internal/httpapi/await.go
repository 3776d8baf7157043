package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

func (a *api) await() {
	add(a, route{
		id: "await", method: http.MethodPost, path: "/v1/await", tag: "executions",
		summary: "Wait for the ends of many executions at once",
		doc: "Server-sent events: `ended` with each execution when it has ended, `refused` with the problem of " +
			"an execution that cannot be awaited, " +
			"and `over` when every execution has had its event or the wait is over. A comment every 15 s shows that the stream is " +
			"alive. " +
			"A stream that ends without `over` was cut off: repeat the request with the executions that had no event.",
		example: `{"executions": ["ex_01m7w13wbkep9rfsn7shzr3mtm"], "wait_ms": 30000}`,
		scopes:  []belay.Scope{belay.ScopeRead}, body: true, stream: true,
	}, a.awaitMany, func(d *document, op *huma.Operation) {
		op.Responses["200"].Content = map[string]*huma.MediaType{"text/event-stream": d.eventStream(
			Event{Schema: "EndedEvent", Name: wire.EventEnded, Data: reflect.TypeFor[belay.Execution]()},
			Event{Schema: "RefusedEvent", Name: wire.EventRefused, Data: reflect.TypeFor[wire.Refused]()},
			Event{Schema: "OverEvent", Name: wire.EventOver, Data: reflect.TypeFor[wire.Over]()},
		)}
	})
}

// maxAwaiting is the maximum number of executions for which all requests of POST /v1/await together
// may wait: each execution takes ten kilobytes of memory, and one request may name a thousand
// executions.
const maxAwaiting = 20_000

// awaiting counts the executions for which requests wait: of all callers together, and of each
// caller. A single caller may wait for half of maxAwaiting.
type awaiting struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

func (w *awaiting) begin(who string, n int) (end func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.of[who]+n > maxAwaiting/2:
		return nil, &belay.Error{
			Code: belay.CodeRateLimited, RetryAfter: time.Second,
			Message: "one caller waits for too many executions at the same time; ask again, or another server",
		}
	case w.all+n > maxAwaiting:
		return nil, &belay.Error{
			Code: belay.CodeUnavailable, RetryAfter: time.Second, Err: errBusy,
			Message: "too many executions are awaited at the same time; ask again, or another server",
		}
	}
	if w.of == nil {
		w.of = make(map[string]int)
	}
	w.all += n
	w.of[who] += n
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all -= n
		if w.of[who] -= n; w.of[who] == 0 {
			delete(w.of, who)
		}
	}, nil
}

// awaitMany sends an event for each execution when it has ended.
func (a *api) awaitMany(ctx context.Context, in *struct{ Body wire.Await }) (*stream, error) {
	wait := waitOf(in.Body.WaitMS)
	ids := make(map[belay.ExecutionID]bool, len(in.Body.Executions))
	for _, id := range in.Body.Executions {
		ids[id] = true
	}
	over, err := a.awaiting.begin(nameOf(ctx), len(ids))
	if err != nil {
		return nil, err
	}
	return &stream{Body: func(c huma.Context) {
		defer over()
		r, w := humago.Unwrap(c)
		ctx, done := a.waiting(r.Context())
		defer done()
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan awaited)
		var all sync.WaitGroup
		for id := range ids {
			all.Go(func() { a.awaitOne(ctx, id, wait, ended) })
		}
		go func() {
			all.Wait()
			close(ended)
		}()
		a.tell(ctx, r, sender{w, a.o.WriteTimeout}, ended)
		cancel()
		all.Wait()
	}}, nil
}

// awaited is an execution that has ended, or the error that says why the API cannot wait for the execution.
type awaited struct {
	id  belay.ExecutionID
	x   *belay.Execution // if nil, the API reads the execution when it writes the event
	err error
}

// heldOutput is the maximum size, in bytes, of an output that stays in memory until the event of
// its execution is written. Because a thousand executions may end at the same moment, the API reads
// a larger output from the Backend again when it writes the event.
const heldOutput = 16 << 10

// awaitOne waits for the end of one execution, but no longer than wait, and sends the result to
// ended. It sends nothing if the execution has not ended by then.
func (a *api) awaitOne(ctx context.Context, id belay.ExecutionID, wait wait, ended chan<- awaited) {
	x, err := a.b.Await(ctx, id, wait.Duration)
	out := awaited{id: id, err: err}
	switch {
	case ctx.Err() != nil || err == nil && !x.State.Terminal():
		return
	case err == nil && len(x.Output) <= heldOutput:
		out.x = &x
	}
	select {
	case ended <- out:
	case <-ctx.Done():
	}
}

// tell writes the event of each execution when the execution has ended. It sends several events in
// one write if several executions have ended since the last write.
func (a *api) tell(ctx context.Context, r *http.Request, s sender, ended <-chan awaited) {
	if !s.begin() {
		return
	}
	ping := time.NewTicker(a.o.Ping)
	defer ping.Stop()
	var text bytes.Buffer
	for over := false; !over; {
		text.Reset()
		select {
		case e, more := <-ended:
			over = !more || a.gather(ctx, &text, e, ended)
		case <-ping.C:
			if !a.gate.still(r) {
				return
			}
			text.WriteString(": ping\n\n")
		case <-ctx.Done():
			return
		}
		if over && ctx.Err() == nil {
			text.WriteString("event: " + wire.EventOver + "\ndata: {}\n\n")
		}
		if !s.send(text.Bytes()) {
			return
		}
	}
}

// gather adds to text the event of the execution e, and the events of all other executions that
// have ended since the last write. It returns true if no more events will come.
func (a *api) gather(ctx context.Context, text *bytes.Buffer, e awaited, ended <-chan awaited) (over bool) {
	for {
		a.write(ctx, text, e)
		if text.Len() >= clientBuffer {
			return false
		}
		select {
		case next, more := <-ended:
			if !more {
				return true
			}
			e = next
		default:
			return false
		}
	}
}

// write appends the event for one execution to text: that it has ended, or why the wait for it was
// refused.
func (a *api) write(ctx context.Context, text *bytes.Buffer, e awaited) {
	if e.err == nil && e.x == nil {
		x, err := a.b.Execution(ctx, e.id)
		e.x, e.err = &x, err
	}
	name, v := wire.EventEnded, any(e.x)
	if e.err != nil {
		a.away(ctx, e.err)
		name, v = wire.EventRefused, wire.Refused{Execution: e.id, Error: problemOf(e.err)}
	}
	frame, err := sse(name, "", v)
	if err != nil {
		a.o.Log.ErrorContext(ctx, "belay: an execution cannot be written", "execution", e.id, "error", err)
		return
	}
	text.Write(frame)
}
