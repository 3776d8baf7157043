package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// The number of watchers; each follows one execution at a time.
const (
	streams = 10 // watchers that read server-sent events
	polls   = 6  // watchers that use long polls
)

// follower watches one execution after the other, at any server that answers. After an error it
// continues with the event after the last event that it received.
type follower struct {
	*world
	name string
	r    *rand.Rand
	poll bool
	n    int
}

// follow takes executions from the channel next and watches them one after the other, each until
// its end. When ctx ends, follow takes no further execution and returns.
func (f *follower) follow(ctx, healed context.Context, next <-chan belay.ExecutionID) {
	for {
		select {
		case id := <-next:
			f.n++
			f.one(healed, id)
		case <-ctx.Done():
			return
		}
	}
}

func (f *follower) one(ctx context.Context, id belay.ExecutionID) {
	at := promise.Sighting{Watcher: fmt.Sprintf("%s.%d", f.name, f.n), Execution: id}
	final := false
	see := func(ev belay.Event) {
		at.Seq, at.Kind, at.At = ev.Seq, ev.Kind, time.Now()
		final = ev.Final
		f.saw(at)
	}
	for !final && ctx.Err() == nil {
		s := f.servers[f.r.IntN(len(f.servers))]
		at.Began = time.Now()
		var err error
		if f.poll {
			err = pollOnce(ctx, s, id, at.Seq, see)
		} else {
			err = s.stream(ctx, id, at.Seq, see)
		}
		if err != nil {
			f.happened("watch broken off and resumed")
			_ = pause(ctx, 50*time.Millisecond)
		}
	}
}

func pollOnce(ctx context.Context, s *server, id belay.ExecutionID, after int64, see func(belay.Event)) error {
	events, err := s.hasty.Events(ctx, belay.EventQuery{Execution: id, After: after, Wait: 5 * time.Second})
	for _, ev := range events {
		see(ev)
	}
	return err
}

var errBroken = errors.New("the stream broke off")

// stream reads server-sent events until the stream ends.
func (s *server) stream(ctx context.Context, id belay.ExecutionID, after int64, see func(belay.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"/v1/executions/"+id.String()+"/events", nil)
	if err != nil {
		return err
	}
	if after > 0 {
		q.Header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	a, err := s.plain.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return errors.New(a.Status)
	}
	silent := time.AfterFunc(30*time.Second, cancel) // more than the 15 s after which the server sends a ping
	defer silent.Stop()
	name := ""
	for lines := bufio.NewScanner(a.Body); lines.Scan(); silent.Reset(30 * time.Second) {
		if v, is := bytes.CutPrefix(lines.Bytes(), []byte("event: ")); is {
			name = string(v)
		}
		v, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case is && name == "end":
			return nil
		case is && name == "event":
			var ev belay.Event
			if err := json.Unmarshal(v, &ev); err != nil {
				return err
			}
			see(ev)
		}
	}
	return errBroken
}
