package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/wire"
)

// silence is how long a stream may be without a sign of life. The server sends one every 15 s.
const silence = 45 * time.Second

// Follow reports the states of executions. If the connection breaks, Follow opens another one and
// continues after the last news; it returns CodeUnavailable when no server has answered for the time
// Patience. The call uses a connection of its own: however slow f is, it delays no other call.
func (c *Client) Follow(ctx context.Context, q belay.StatusQuery, f func(belay.StatusNews) error) error {
	done, err := c.begin()
	if err != nil {
		return err
	}
	defer done()
	const op = "follow states"
	if err := checkTexts(op, q.Workflow, q.Queue); err != nil {
		return err
	}
	calling := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(c.open, func() { end(errClosed) })
	defer stop()
	on := c.link(largeTuning).connection()
	defer on.CloseIdleConnections()
	defer on.retire()
	s := &following{c: c, on: on, q: q, report: f}
	delays := retry.NewDelays(c.set.ids)
	var failing time.Time
	for {
		err := s.once(ctx, op)
		switch {
		case s.refused != nil:
			return s.refused
		case calling.Err() != nil:
			return context.Cause(calling)
		case ctx.Err() != nil:
			return errClosed
		case !retry.Transient(err) || retry.IsOnce(ctx):
			return err
		}
		if s.alive || failing.IsZero() {
			failing = time.Now()
		}
		if s.alive {
			delays.Reset()
		}
		d := delays.Next(err)
		if time.Since(failing)+d > c.set.patience {
			return err
		}
		c.set.log.DebugContext(ctx, "belay: the stream of states broke", "wait", d, "error", err)
		c.sleep(ctx, d)
	}
}

// following is a call of Follow.
type following struct {
	c       *Client
	on      *connection
	q       belay.StatusQuery
	report  func(belay.StatusNews) error
	refused error // the error of report
	alive   bool  // the last connection has reported something
}

// once opens the stream and reports its events until it ends. It never returns nil.
func (s *following) once(ctx context.Context, op string) error {
	r := request{op: op, method: http.MethodGet, path: "/v1/executions/events", query: statesQuery(&s.q), read: true}
	if s.alive = false; s.q.After != "" {
		r.header = http.Header{"Last-Event-Id": {s.q.After}}
	}
	answer, err := s.c.stream(ctx, s.on, &r)
	if err != nil {
		return err
	}
	defer answer.close()
	lines := bufio.NewScanner(answer.body)
	lines.Buffer(make([]byte, 0, 16<<10), maxEvent)
	var e sentEvent
	for answer.within(silence); lines.Scan(); answer.within(silence) {
		if !e.take(lines.Bytes()) {
			continue
		}
		answer.within(0) // report may take its time
		if err := s.event(op, &e); err != nil {
			return err
		}
		e = sentEvent{}
	}
	return noAnswer(&r, cmp.Or(context.Cause(answer.ctx), lines.Err(), errCutOff))
}

// event reports one event.
func (s *following) event(op string, e *sentEvent) error {
	n := belay.StatusNews{Position: e.id}
	var err error
	switch e.name {
	case wire.EventSnapshot:
		n.Snapshot = new(belay.StatusSnapshot)
		err = json.Unmarshal(e.data, n.Snapshot)
	case wire.EventChange:
		n.Changes = []belay.StatusChange{{Position: e.id}}
		err = json.Unmarshal(e.data, &n.Changes[0])
	case wire.EventPosition:
	default:
		return nil
	}
	if err != nil {
		return &belay.Error{Code: belay.CodeInternal, Op: op, Message: "the server's answer cannot be read", Err: err}
	}
	s.alive = true
	if e.id != "" {
		s.q.After = e.id
	}
	if n.Snapshot != nil || len(n.Changes) > 0 || s.q.Idle > 0 {
		s.refused = s.report(n)
	}
	return s.refused
}

// sentEvent is a server-sent event.
type sentEvent struct {
	name, id string
	data     []byte
}

// take adds a line, and reports whether the event is complete.
func (e *sentEvent) take(line []byte) bool {
	field, value, _ := bytes.Cut(line, []byte(": "))
	switch string(field) {
	case "event":
		e.name = string(value)
	case "id":
		e.id = string(value)
	case "data":
		e.data = append(e.data, value...)
	}
	return len(line) == 0 && e.name != ""
}

func statesQuery(f *belay.StatusQuery) url.Values {
	q := url.Values{}
	for _, s := range f.States {
		q.Add("state", s.String())
	}
	for k, v := range f.Labels {
		q.Add("label", k+"="+v)
	}
	set(q, "workflow", f.Workflow)
	set(q, "queue", f.Queue)
	if !f.Parent.IsZero() {
		q.Set("parent", f.Parent.String())
	}
	if f.Children {
		q.Set("children", "true")
	}
	return q
}
