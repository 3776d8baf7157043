package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
)

// The stream /live tells the script of a page that the page may have changed. The script then reads the page again, so
// that the stream itself shows nothing of an execution. With the parameter execution, an event is a change of this
// execution after the one with the seq of the parameter after; otherwise it is a change of the state of any execution.
// Like the pages, the stream is no part of the API.
const (
	livePath  = "/live"
	mostLives = 4096 // streams of pages on one server
	// lifePause and lifesPause are the shortest times between two events of a stream: of one execution, and of all
	// executions. A page of one execution shows a change within a second; reading a list takes the server longer.
	lifePause, lifesPause = 250 * time.Millisecond, time.Second
	followAgain           = time.Second     // after following the states has failed
	followIdle            = 2 * time.Second // after this time without changes the position of a snapshot is valid
)

// lives counts and feeds the streams of the pages.
type lives struct {
	open atomic.Int64
	all  bell
}

func (a *api) live() {
	a.lives.all.backend = a.b
	rt := &route{
		method: http.MethodGet, path: livePath, scopes: []belay.Scope{belay.ScopeRead}, page: true, stream: true,
	}
	a.define(rt, func(w http.ResponseWriter, r *http.Request) {
		if err := a.followPage(w, r); err != nil {
			f := refuse(err)
			a.failed(r.Context(), rt, f)
			f.write(w)
		}
	}, nil)
}

// followPage writes the stream of one page. It returns an error if the stream has not begun.
func (a *api) followPage(w http.ResponseWriter, r *http.Request) error {
	// A browser checks only after the request whether another site may read the answer, and would keep the stream open
	// until then. So the check is the same as for forms.
	asForm := *r
	asForm.Method = http.MethodPost
	if !a.gate.ownPage(&asForm) {
		return &belay.Error{Code: belay.CodeForbidden, Message: "only a page of this server may do this"}
	}
	if a.lives.open.Add(1) > mostLives {
		a.lives.open.Add(-1)
		return &belay.Error{
			Code: belay.CodeUnavailable, Message: "too many pages of this server are open", RetryAfter: 5 * time.Second,
		}
	}
	defer a.lives.open.Add(-1)
	id, after, err := liveQuery(r.URL.Query())
	if err != nil {
		return err
	}
	s := &liveWriter{api: a, request: r, sender: sender{w, a.o.WriteTimeout}}
	if id.IsZero() {
		newest, leave := a.lives.all.join()
		defer leave()
		s.run(-1, lifesPause, newest) // the list may have changed since it was rendered
		return nil
	}
	x, err := a.b.Execution(r.Context(), id)
	if err != nil {
		return err
	}
	if after > x.Seq {
		after = -1 // the page shows another state than the store has, for example of a store that was restored
	}
	fd, g, leave := a.feeds.watch(feedKey{execution: id}, x.Seq)
	defer leave()
	s.run(after, lifePause, func() (int64, <-chan struct{}, error) {
		seq, next, err := fd.newest(g)
		return max(x.Seq, seq), next, err
	})
	return nil
}

// liveQuery reads the query of the stream. The id is zero if the page shows many executions.
func liveQuery(q url.Values) (id belay.ExecutionID, after int64, err error) {
	for name := range q {
		switch name {
		case "execution":
			if id, err = belay.ParseExecutionID(q.Get(name)); err != nil {
				return id, 0, err
			}
		case "after":
			if after, err = strconv.ParseInt(q.Get(name), 10, 64); err != nil || after < 0 {
				return id, 0, malformed("after must be the seq of an event")
			}
		default:
			return id, 0, malformed(fmt.Sprintf("unknown query parameter %q", short(name)))
		}
	}
	if id.IsZero() && len(q) > 0 {
		return id, 0, malformed("after needs an execution")
	}
	return id, after, nil
}

// liveWriter writes the stream of one page.
type liveWriter struct {
	*api
	request *http.Request
	sender
}

// run sends an event when newest returns a larger number than before, with a pause between two events. newest also
// returns a channel that is closed when the number may have grown.
func (s *liveWriter) run(seen int64, pause time.Duration, newest func() (int64, <-chan struct{}, error)) {
	if s.head(); !s.send([]byte(reconnect)) {
		return
	}
	ping := time.NewTicker(s.o.Ping)
	defer ping.Stop()
	rest := time.NewTimer(pause)
	rest.Stop()
	resting := false
	for {
		n, next, err := newest()
		switch {
		case n > seen && !resting:
			if !s.send(fmt.Appendf(nil, "event: changed\ndata: {\"n\": %d}\n\n", n)) {
				return
			}
			seen, resting = n, true
			rest.Reset(pause)
			continue
		case err != nil && n <= seen:
			return // the script opens the stream again, and then gets the refusal
		case n > seen:
			next = nil // the next event has a reason already, and waits for the end of the pause
		}
		select {
		case <-next:
		case <-rest.C:
			resting = false
		case <-ping.C:
			if !s.gate.still(s.request) || !s.send([]byte(": ping\n\n")) {
				return
			}
		case <-s.o.Stopping:
			return
		case <-s.request.Context().Done():
			return
		}
	}
}

// newest returns the seq of the newest event that the feed has had, and a channel that is closed when there may be
// another one.
func (fd *feed) newest(g *group) (seq int64, next <-chan struct{}, err error) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	return fd.base + int64(len(fd.frames)), g.next, fd.err
}

// bell rings when the state of any execution changes. However many pages listen, it follows the states once, and only
// while a page listens.
type bell struct {
	backend belay.Client

	mu        sync.Mutex
	listeners int
	cancel    context.CancelFunc
	ended     chan struct{}
	rung      int64
	next      chan struct{} // closed when the bell rings
	// position is that of the newest news. The next listener continues there, which spares the server a snapshot of
	// all executions each time that a person goes from one page to the next.
	position string
}

// join returns a function that counts how often the bell has rung, with a channel that is closed when it rings again.
func (b *bell) join() (newest func() (int64, <-chan struct{}, error), leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners++; b.listeners == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		ended, before := make(chan struct{}), b.ended
		b.cancel, b.ended, b.next = cancel, ended, make(chan struct{})
		go func() {
			defer close(ended)
			if before != nil {
				<-before
			}
			b.follow(ctx)
		}()
	}
	return b.newest, b.leave
}

func (b *bell) newest() (int64, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung, b.next, nil
}

func (b *bell) leave() {
	b.mu.Lock()
	b.listeners--
	last, ended := b.listeners == 0, b.ended
	if last {
		b.cancel()
	}
	b.mu.Unlock()
	if last {
		<-ended
	}
}

// follow follows the states until ctx ends.
func (b *bell) follow(ctx context.Context) {
	for ctx.Err() == nil {
		b.mu.Lock()
		q := belay.StatusQuery{Children: true, After: b.position, Idle: followIdle}
		b.mu.Unlock()
		err := b.backend.Follow(ctx, q, func(n belay.StatusNews) error {
			b.hear(&n)
			return nil
		})
		if belay.CodeOf(err) == belay.CodeInvalid { // never happens: the position is the Backend's own
			b.mu.Lock()
			b.position = ""
			b.mu.Unlock()
		}
		pause(ctx, followAgain)
	}
}

func (b *bell) hear(n *belay.StatusNews) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n.Position != "" {
		b.position = n.Position
	}
	if n.Snapshot == nil && len(n.Changes) == 0 {
		return
	}
	b.rung++
	close(b.next)
	b.next = make(chan struct{})
}
