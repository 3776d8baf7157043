package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/testkit/promise"
	"github.com/belaydev/belay/internal/testkit/raced"
)

const states = "/v1/executions/events"

// follower is a client of a stream of states. It checks each event.
type follower struct {
	body io.Closer
	in   *bufio.Reader
	promise.States
	last string // the id of the last event that has one
}

// followed opens a stream of states.
func (s *server) followed(ctx context.Context, c *http.Client, query string, h ...string) (*follower, error) {
	if s.key != "" {
		h = append(h, "Authorization", "Bearer "+s.key)
	}
	raw, err := s.open(ctx, c, states+query, h...)
	if err != nil {
		return nil, err
	}
	f := &follower{body: raw.body, in: raw.in}
	values, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
	for _, word := range values["state"] {
		var state belay.State
		if err := state.UnmarshalText([]byte(word)); err != nil {
			return nil, err
		}
		f.Query.States = append(f.Query.States, state)
	}
	f.Query.Workflow, f.Query.Children = values.Get("workflow"), values.Get("children") != ""
	for i := 0; i+1 < len(h); i += 2 {
		if h[i] == "Last-Event-ID" {
			f.Query.After = h[i+1]
		}
	}
	return f, err
}

// next reads one event and checks it.
func (f *follower) next() (name string, err error) {
	var data, id string
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			return name, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case field == "event":
			name = value
		case field == "data":
			data = value
		case field == "id":
			id = value
		case line == "\n" && name != "":
			if id != "" {
				f.last = id
			}
			return name, f.check(name, data)
		}
	}
}

func (f *follower) check(name, data string) error {
	var n belay.StatusNews
	var err error
	switch name {
	case "snapshot":
		n.Snapshot = new(belay.StatusSnapshot)
		err = json.Unmarshal([]byte(data), n.Snapshot)
	case "change":
		n.Changes = make([]belay.StatusChange, 1)
		err = json.Unmarshal([]byte(data), &n.Changes[0])
	case "position":
		return nil
	default:
		return fmt.Errorf("the event %q with %s", name, data)
	}
	if err != nil {
		return err
	}
	return f.Follow(n)
}

// until reads events until a condition holds.
func (f *follower) until(holds func() bool) error {
	for !holds() {
		if _, err := f.next(); err != nil {
			return fmt.Errorf("after %d changes and snapshots %v: %w", len(f.Changes), f.Snapshots, err)
		}
	}
	return nil
}

// must opens a stream and reads its first snapshot.
func (s *server) mustFollow(query string, h ...string) *follower {
	s.t.Helper()
	f, err := s.followed(s.t.Context(), http.DefaultClient, query, h...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { f.body.Close() })
	if f.Query.After == "" {
		if err := f.until(func() bool { return f.last != "" }); err != nil {
			s.t.Fatal(err)
		}
	}
	return f
}

// A stream of states has a snapshot and then the changes. It continues after the id of an event while the
// server has all changes after it, and begins with another snapshot otherwise.
func TestStatesStream(t *testing.T) {
	s := serve(t, httpapi.Options{Ping: 5 * time.Millisecond})
	path := s.submit(`{"workflow": "w", "labels": {"team": "web"}}`)
	f := s.mustFollow("?label=team%3Dweb")
	if len(f.Known) != 1 {
		t.Errorf("the snapshot has %v", f.Known)
	}
	s.submit(`{"workflow": "w", "labels": {"team": "api"}}`)
	s.want(http.StatusOK, nil, "POST", path+"/cancel", "")
	if err := f.until(func() bool { return len(f.Changes) == 1 }); err != nil {
		t.Fatal(err)
	}
	if c := f.Changes[0]; c.Matches || c.State != belay.Cancelled || c.Previous != belay.Pending ||
		c.Labels["team"] != "web" || c.Seq != 2 {
		t.Errorf("the change %+v", c)
	}
	settled := func() bool { return !strings.HasPrefix(f.last, "0000000000000000.") }
	if err := f.until(settled); err != nil {
		t.Fatal(err)
	}
	f.body.Close()
	id := strings.TrimPrefix(s.submit(`{"workflow": "w", "labels": {"team": "web"}}`), "/v1/executions/")
	again := s.mustFollow("?label=team:web", "Last-Event-ID", f.last)
	if err := again.until(func() bool { return len(again.Changes) == 1 }); err != nil || len(again.Snapshots) != 0 ||
		again.Changes[0].Execution.String() != id {
		t.Errorf("%v; snapshots %v, changes %v", err, again.Snapshots, again.Changes)
	}
	for _, last := range []string{f.last[:17] + "999999", "0123456789abcdef.1"} {
		other := s.mustFollow("", "Last-Event-ID", last)
		if _, err := other.next(); err != nil || fmt.Sprint(other.Snapshots) != "[lost]" {
			t.Errorf("after %s: %v; snapshots %v", last, err, other.Snapshots)
		}
	}
}

// The server refuses a query that cannot be, with a reason, before it begins a stream.
func TestStatesRefusals(t *testing.T) {
	s := serve(t, httpapi.Options{})
	for query, status := range map[string]int{
		"?state=asleep": 400, "?state=running&workflow=a&workflow=b": 400, "?workflow=%00": 400,
		"?workflow=" + strings.Repeat("w", 201): 400, "?label=x": 400, "?label=%3Dx": 400,
		"?label=a%3D1&label=a%3D2":               400,
		"?" + strings.Repeat("label=a%3D1&", 40): 400, "?" + strings.Repeat("state=running&", 9): 400,
		"?label=" + strings.Repeat("n", 300) + "%3Dx": 422, "?parent=me": 400, "?children=2": 400, "?after=3": 400,
		"?after=0123456789abcdef.": 400, "?after=0123456789ABCDEF.1": 400, "?after=0123456789abcdef.01": 422,
		"?after=0123456789abcdef.9999999999999999999": 422, "?after=" + strings.Repeat("1", 50): 400, "?since=1": 400,
		"?limit=1": 400,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		a, err := s.try(ctx, "GET", states+query, "")
		cancel()
		if err != nil || a.StatusCode != status || !strings.Contains(string(a.body), `"detail"`) {
			t.Errorf("%.80s: %+v, want %d: %v", query, a, status, err)
		}
	}
	for _, last := range []string{"1", "-1", "0123456789abcdef.-1", "0123456789abcdef.1e3", "bst_x", "'; DROP TABLE"} {
		s.refused(http.StatusBadRequest, belay.CodeMalformed, "GET", states, "", "Last-Event-ID", last)
	}
	s.refused(http.StatusMethodNotAllowed, belay.CodeMalformed, "POST", states, `{}`)
}

// A stream of states needs a key with the scope of lists, and ends when the key is revoked, also while there
// are changes all the time.
func TestStatesNeedAKey(t *testing.T) {
	s := serve(t, httpapi.Options{Ping: 10 * time.Millisecond, Rate: httpapi.Rate{PerSecond: -1}})
	reader, writer := s.withKey("reader", belay.ScopeRead), s.withKey("writer", belay.ScopeSubmit)
	s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, "GET", states, "")
	writer.refused(http.StatusForbidden, belay.CodeForbidden, "GET", states, "")
	f := reader.mustFollow("")
	busy, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for busy.Err() == nil {
			if _, err := s.b.Submit(t.Context(), belay.Submission{Workflow: "w"}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writing.Wait()
	defer stop()
	if err := f.until(func() bool { return len(f.Changes) > 3 }); err != nil {
		t.Fatal(err)
	}
	keys, err := s.b.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Name == "reader" {
			if err := s.b.RevokeKey(t.Context(), belay.Revocation{Key: k.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.until(func() bool { return false }); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the stream ended with %v", err)
	}
}

// The server refuses streams of one caller above a maximum number with 429, and of all callers with 503; both
// say when to ask again. When the server stops, all streams end.
func TestStatesAreBounded(t *testing.T) {
	stopping := make(chan struct{})
	s := serve(t, httpapi.Options{Waiting: 2, Stopping: stopping})
	one, two := s.mustFollow(""), s.mustFollow("?workflow=nothing")
	p := s.do("GET", states, "")
	if p.StatusCode != http.StatusTooManyRequests || p.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d %v %s", p.StatusCode, p.Header, p.body)
	}
	close(stopping)
	for _, f := range []*follower{one, two} {
		if _, err := f.next(); err == nil {
			t.Error("a stream went on after the stop")
		}
	}
	full := serveOn(t, fullBackend{s.b}, httpapi.Options{})
	p = full.do("GET", states, "")
	if p.StatusCode != http.StatusServiceUnavailable || p.Header.Get("Retry-After") != "5" {
		t.Errorf("a full server: %d %v %s", p.StatusCode, p.Header, p.body)
	}
}

// fullBackend has as many followers as it can.
type fullBackend struct{ belay.Backend }

func (fullBackend) Follow(context.Context, belay.StatusQuery, func(belay.StatusNews) error) error {
	return &belay.Error{Code: belay.CodeUnavailable, Message: "too many followers", RetryAfter: 5 * time.Second}
}

// A thousand clients follow all states, and a tenth of them do not read until the end. Each of them sees
// every change once and in order, because the server keeps the changes for slow clients.
func TestThousandFollowers(t *testing.T) {
	followers, executions := 1000, 400
	if raced.On || testing.Short() {
		followers = 100
	}
	b, err := embedded.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := serveNarrow(t, b, httpapi.Options{WriteTimeout: 10 * time.Minute, Rate: httpapi.Rate{PerSecond: -1}})
	client := narrowClient()
	defer client.CloseIdleConnections()
	written := make(chan struct{}) // closed when the slow clients are to begin to read
	var joined, done sync.WaitGroup
	joined.Add(followers)
	for i := range followers {
		done.Go(func() {
			f, err := s.followed(t.Context(), client, "")
			if err == nil {
				defer f.body.Close()
				err = f.until(func() bool { return f.last != "" })
			}
			joined.Done()
			if err == nil && i%10 == 0 {
				<-written
			}
			if err == nil {
				err = f.until(func() bool { return len(f.Changes) == 3*executions })
			}
			if err != nil || len(f.Snapshots) != 1 || len(f.Known) != 0 {
				t.Errorf("follower %d: %v", i, err)
			}
		})
	}
	joined.Wait()
	for range executions {
		own(t, b).complete()
	}
	close(written)
	done.Wait()
}

// The server cuts off a follower that does not read. When the follower connects again and is too far behind,
// it gets a snapshot with the true states.
func TestADeafFollowerIsCutOff(t *testing.T) {
	b, err := embedded.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := serveNarrow(t, b, httpapi.Options{WriteTimeout: 200 * time.Millisecond})
	client := narrowClient()
	defer client.CloseIdleConnections()
	f, err := s.followed(t.Context(), client, "?workflow=w")
	if err != nil {
		t.Fatal(err)
	}
	defer f.body.Close()
	var left int
	for over := false; !over; left++ {
		if _, err := b.Submit(t.Context(), belay.Submission{Workflow: "w", Labels: map[string]string{
			"long": strings.Repeat("x", 200), "longer": strings.Repeat("y", 200),
		}}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.ended: // the server has cut the follower off
			over = true
		default:
		}
	}
	if err := f.until(func() bool { return len(f.Known) == left }); err == nil {
		t.Error("it was not cut off")
	}
	again := s.mustFollow("?workflow=w")
	if want := min(left, belay.MaxSnapshot); len(again.Known) != want { // a fast machine accepts more meanwhile
		t.Errorf("the snapshot has %d executions, want %d", len(again.Known), want)
	}
}
