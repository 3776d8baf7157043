package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"regexp"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type statesRequest struct {
	States   []string          `query:"state,explode" enum:"pending,scheduled,running,waiting,paused,succeeded,failed,cancelled" doc:"Only these states; may be repeated. Without it: the states of executions that have not ended."`
	Workflow string            `query:"workflow" maxLength:"200"`
	Queue    string            `query:"queue" maxLength:"200"`
	Parent   belay.ExecutionID `query:"parent" doc:"The children of this execution."`
	Children bool              `query:"children" doc:"Roots, and also the children of all executions."`
	Labels   []string          `query:"label,explode" doc:"name=value or name:value; may be repeated: an execution must have all of them."`
	After    string            `query:"after" maxLength:"40" doc:"The id of the last event that the client has."`
	Last     string            `header:"Last-Event-ID" maxLength:"40" doc:"The id of the last event that the client has; it is used instead of after."`
}

// positions is the form of the ids of the events of this stream.
const positions = "^[0-9a-f]{16}[.][0-9]{1,19}$"

var isPosition = regexp.MustCompile(positions)

func (a *api) states() {
	add(a, route{
		id: "followStates", method: http.MethodGet, path: "/v1/executions/events", tag: "executions",
		summary: "Follow the states of many executions as a stream",
		doc: "Server-sent events: first a `snapshot`, in one part or several, with the state of each execution that " +
			"matches the query, and then a `change` for each change of state of an execution that matches the query " +
			"before or after it. The changes of one execution come in order of seq. With Last-Event-ID the stream " +
			"continues after that event. If changes may be missing, another snapshot follows, whose field cause gives " +
			"the reason: it replaces everything before it. A `position` every 15 s shows that the stream is alive.",
		scopes: []belay.Scope{belay.ScopeRead}, lists: []string{"state", "label"}, stream: true,
		errors: []int{http.StatusUnprocessableEntity},
	}, a.followStates, func(d *document, op *huma.Operation) {
		op.Responses["200"].Content = map[string]*huma.MediaType{"text/event-stream": d.eventStream(
			Event{Schema: "StatesEvent", Name: wire.EventSnapshot, Data: reflect.TypeFor[belay.StatusSnapshot]()},
			Event{Schema: "StatesEndEvent", Name: wire.EventSnapshot, ID: positions,
				Data: reflect.TypeFor[belay.StatusSnapshot]()},
			Event{Schema: "ChangeEvent", Name: wire.EventChange, ID: positions,
				Data: reflect.TypeFor[belay.StatusChange]()},
			Event{Schema: "PositionEvent", Name: wire.EventPosition, ID: positions, Data: reflect.TypeFor[wire.Over]()},
		)}
	})
}

func (in *statesRequest) query() (q belay.StatusQuery, err error) {
	q = belay.StatusQuery{
		Workflow: in.Workflow, Queue: in.Queue, Parent: in.Parent, Children: in.Children, After: in.After,
	}
	if in.Last != "" {
		q.After = in.Last
	}
	if q.After != "" && !isPosition.MatchString(q.After) {
		return q, malformed("the header Last-Event-ID, or the parameter after, is the id of an event of this stream")
	}
	if len(in.States) > len(belay.ActiveStates())+3 {
		return q, malformed("a state is named twice")
	}
	for _, word := range in.States {
		var s belay.State
		if err := s.UnmarshalText([]byte(word)); err != nil {
			return q, err
		}
		q.States = append(q.States, s)
	}
	q.Labels, err = labelsOf(in.Labels)
	return q, err
}

// followStates streams the states of executions.
func (a *api) followStates(_ context.Context, in *statesRequest) (*stream, error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	q.Idle = a.o.Ping
	return &stream{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		ctx, done := a.waiting(r.Context())
		defer done()
		s := &statesWriter{api: a, request: r, sender: sender{w, a.o.WriteTimeout}, checked: time.Now()}
		if err := a.b.Follow(ctx, q, s.write); err != nil && !s.begun && r.Context().Err() == nil {
			f := refuse(err)
			a.failed(r.Context(), a.routes[r.Pattern], f)
			f.write(w)
		}
	}}, nil
}

// statesWriter writes one stream of states.
type statesWriter struct {
	*api
	request *http.Request
	sender
	begun   bool
	checked time.Time // when the key of the request was last checked
}

// write writes news. Its errors end the stream.
func (s *statesWriter) write(n belay.StatusNews) error {
	text := buffers.Get()
	defer buffers.Put(text)
	if !s.begun {
		s.begun = true
		s.head()
		text.WriteString(reconnect)
	}
	if now := time.Now(); now.Sub(s.checked) >= s.o.Ping {
		if s.checked = now; !s.gate.still(s.request) {
			return errStreamOver
		}
	}
	switch {
	case n.Snapshot != nil:
		frame, err := sse(wire.EventSnapshot, n.Position, n.Snapshot)
		if err != nil {
			return err
		}
		text.Write(frame)
	case n.Position == "":
		text.WriteString(": ping\n\n")
	case len(n.Changes) == 0:
		text.WriteString("event: " + wire.EventPosition + "\nid: " + n.Position + "\ndata: {}\n\n")
	}
	for i := range n.Changes {
		frame, err := s.statusFrames.of(&n.Changes[i])
		if err != nil {
			return err
		}
		if text.Write(frame); text.Len() >= clientBuffer {
			if !s.send(text.Bytes()) {
				return errStreamOver
			}
			text.Reset()
		}
	}
	if text.Len() > 0 && !s.send(text.Bytes()) {
		return errStreamOver
	}
	return nil
}

// errStreamOver ends a stream whose client is gone or too slow, or whose key is not valid any more.
var errStreamOver = &belay.Error{Code: belay.CodeUnavailable, Message: "the stream is over"}

// statusFrames has the newest changes of states in the form in which they are sent, so that a change
// is marshalled once, however many clients follow it. When the young half is full, the old half is
// dropped.
type statusFrames struct {
	mu         sync.Mutex
	young, old map[statusFrame][]byte
	bytes      int // in young
}

// statusFrame names a frame: clients whose filters differ may get different frames of one change.
type statusFrame struct {
	execution belay.ExecutionID
	seq       int64
	at        int64 // another one after the execution was deleted and submitted again
	position  string
	matches   bool
}

// maxFrames and maxFrameBytes limit one half of the frames.
const (
	maxFrames     = 8192
	maxFrameBytes = 4 << 20
)

// of returns the frame of a change.
func (f *statusFrames) of(c *belay.StatusChange) ([]byte, error) {
	key := statusFrame{c.Execution, c.Seq, c.At.UnixNano(), c.Position, c.Matches}
	f.mu.Lock()
	frame := f.young[key]
	if frame == nil {
		if frame = f.old[key]; frame != nil {
			f.putLocked(key, frame)
		}
	}
	f.mu.Unlock()
	if frame != nil {
		return frame, nil
	}
	frame, err := sse(wire.EventChange, c.Position, c)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.putLocked(key, frame)
	return frame, nil
}

func (f *statusFrames) putLocked(key statusFrame, frame []byte) {
	if f.young == nil || len(f.young) >= maxFrames || f.bytes >= maxFrameBytes {
		f.old, f.young, f.bytes = f.young, make(map[statusFrame][]byte), 0
	}
	f.young[key] = frame
	f.bytes += len(frame)
}
