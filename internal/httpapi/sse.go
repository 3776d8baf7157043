package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belaydev/belay"
)

// stream is an answer whose body is written over time.
type stream struct {
	Body func(huma.Context)
}

// follow streams the events of an execution.
func (a *api) follow(ctx context.Context, in *eventsRequest) (*stream, error) {
	after := in.After
	if in.Last != "" {
		seq, err := strconv.ParseInt(in.Last, 10, 64)
		if err != nil || seq < 0 {
			return nil, malformed("the header Last-Event-ID is the id of an event, a number")
		}
		after = seq
	}
	x, err := a.b.Execution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := checkCursor(&x, after); err != nil {
		return nil, err
	}
	// A browser reconnects whenever a stream ends; only the status 204 makes it stop.
	over := in.Last != "" && x.State.Terminal() && after >= x.Seq
	return &stream{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		if over {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s := &watcher{
			api: a, request: r, ctx: r.Context(), sender: sender{w, a.o.WriteTimeout}, key: feedKey{in.ID, in.Data},
			seq: after,
		}
		s.run(&x)
	}}, nil
}

// reconnect tells browsers how long to wait, in milliseconds, before they reconnect to a stream
// that ended.
const reconnect = "retry: 2000\n\n"

// clientBuffer is how many bytes a client must accept within the write timeout.
const clientBuffer = 64 << 10

// watcher writes one stream of events.
type watcher struct {
	*api
	request *http.Request
	ctx     context.Context // the context of the request
	sender
	key feedKey
	seq int64 // the seq of the last event that was written
}

func (s *watcher) run(x *belay.Execution) {
	s.head()
	first, err := sse("snapshot", "", x)
	if err != nil || !s.send(append([]byte(reconnect), first...)) {
		return
	}
	fd, g, leave := s.feeds.watch(s.key, s.seq)
	defer leave()
	ping := time.NewTicker(s.o.Ping)
	defer ping.Stop()
	for {
		if x.State.Terminal() && s.seq >= x.Seq { // the execution had ended before the request
			if end, err := endOf(x); err == nil {
				s.send(end)
			}
			return
		}
		frames, next, gap, err := fd.after(s.seq, g)
		if gap {
			frames, err = s.reread()
		}
		if err != nil {
			return // the client reconnects and then gets the refusal
		}
		if len(frames) > 0 {
			if !s.write(frames) {
				return
			}
			continue
		}
		select {
		case <-next:
		case <-ping.C:
			if !s.gate.still(s.request) || !s.send([]byte(": ping\n\n")) {
				return
			}
		case <-s.o.Stopping:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// reread reads from the store the frames that the feed no longer has.
func (s *watcher) reread() ([]frame, error) {
	return read(s.ctx, s.b, belay.EventQuery{
		Execution: s.key.execution, After: s.seq, Data: s.key.data, Limit: s.key.atATime(),
	})
}

// write sends frames, and reports whether the stream continues.
func (s *watcher) write(frames []frame) bool {
	control := http.NewResponseController(s.out)
	size := clientBuffer // a full buffer at the start makes the first write move the deadline too
	for _, f := range frames {
		if size += len(f.text); size >= clientBuffer {
			_ = control.SetWriteDeadline(time.Now().Add(s.timeout))
			size = 0
		}
		if _, err := s.out.Write(f.text); err != nil {
			return false
		}
		s.seq = f.seq
	}
	if end := frames[len(frames)-1].end; end != nil {
		s.send(end)
		return false
	}
	return s.flush(control)
}

// sender writes an answer without an end to a client that may be slow.
type sender struct {
	out     http.ResponseWriter
	timeout time.Duration // how long the client may take to accept a write
}

// head begins a stream of events.
func (s sender) head() {
	s.out.Header().Set("Content-Type", "text/event-stream")
	s.out.Header().Set("X-Accel-Buffering", "no")
	s.out.WriteHeader(http.StatusOK)
}

// begin begins a stream whose head the client must see at once.
func (s sender) begin() bool {
	s.head()
	return s.flush(http.NewResponseController(s.out))
}

// send writes to the client, which must accept the bytes within the timeout.
func (s sender) send(b []byte) bool {
	control := http.NewResponseController(s.out)
	_ = control.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, err := s.out.Write(b); err != nil {
		return false
	}
	return s.flush(control)
}

// flush sends what was written, and removes the deadline, because over HTTP/2 the deadline would
// end a stream that has nothing to write.
func (s sender) flush(control *http.ResponseController) bool {
	if err := control.Flush(); err != nil {
		return false
	}
	_ = control.SetWriteDeadline(time.Time{})
	return true
}
