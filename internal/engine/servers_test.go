package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// database makes a database with the newest schema.
func database(t testing.TB) string {
	t.Helper()
	return pgtest.Shared(t).From(t, "engine", func(url string) error {
		_, err := postgres.Migrate(context.Background(), url)
		return err
	})
}

// server is an engine on a shared database, with its own store.
type server struct {
	*engine.Engine
	url string
}

// withHints and withoutHints select the store of a server: withHints returns it unchanged, and
// withoutHints returns it without its method Listen, so that the server receives no hints (messages
// about changes at other servers).
func withHints(s store.Store) store.Store    { return s }
func withoutHints(s store.Store) store.Store { return struct{ store.Store }{s} }

// start starts a server.
func start(t testing.TB, url string, listener func(store.Store) store.Store, change ...func(*engine.Options)) server {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := engine.Options{Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	x := server{engine.New(listener(s), o), url}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// pollRarely makes a server poll so rarely that a change which it sees within seconds must have
// arrived as a hint (a message of another server).
func pollRarely(o *engine.Options) { o.SlowPoll, o.HintPoll = 2*time.Minute, time.Minute }

// two starts two servers on one database that receive each other's hints (messages about changes).
func two(t testing.TB) (a, b server) {
	t.Helper()
	url := database(t)
	a, b = start(t, url, withHints, pollRarely), start(t, url, withHints, pollRarely)
	a.heard(t, b)
	b.heard(t, a)
	return a, b
}

// heard waits until this server receives hints from the other server. Before that time hints may be
// lost, and a test of hints would prove nothing.
func (x server) heard(t testing.TB, other server) {
	t.Helper()
	for range 50 {
		id := other.submit(t, "heard")
		at := time.Now()
		if e := x.await(t, other.cancelled(t, id)); e.State == belay.Cancelled && time.Since(at) < time.Second {
			return
		}
	}
	t.Fatal("no hint of the other server arrived")
}

// cancelled cancels an execution in the background, and returns its id.
func (x server) cancelled(t testing.TB, id belay.ExecutionID) belay.ExecutionID {
	go func() {
		if _, err := x.Control(context.Background(), belay.Control{Execution: id,
			Action: belay.ActionCancel}); err != nil {
			t.Error(err)
		}
	}()
	return id
}

func (x server) submit(t testing.TB, workflow string) belay.ExecutionID {
	t.Helper()
	out, err := x.Submit(t.Context(), belay.Submission{Workflow: workflow})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	return out[0].ID
}

func (x server) open(t testing.TB, name, workflow string, ttl time.Duration) belay.WorkerID {
	t.Helper()
	s, err := x.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: name, Workflows: []belay.Registration{{Workflow: workflow}}, Capacity: 100, TTL: belay.Duration(ttl),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// claim sends a claim with one slot and returns the reply. The server replies when the claim has won
// an execution, when the worker should send a heartbeat, or after 20 s.
func (x server) claim(t testing.TB, id belay.WorkerID, number int64) belay.ClaimReply {
	t.Helper()
	r, err := x.Claim(t.Context(), belay.ClaimRequest{Worker: id, Number: number, Slots: 1, Wait: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// won claims one execution. It repeats the claim after a reply that only requests a heartbeat.
func (x server) won(t testing.TB, id belay.WorkerID, number int64) belay.Assignment {
	t.Helper()
	for range 5 {
		r := x.claim(t, id, number)
		if len(r.Assignments) > 0 {
			return r.Assignments[0]
		}
		if !r.Attention {
			break
		}
	}
	t.Fatal("nothing was claimed")
	return belay.Assignment{}
}

func (x server) await(t testing.TB, id belay.ExecutionID) belay.Execution {
	t.Helper()
	e, err := x.Await(t.Context(), id, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (x server) settle(t testing.TB, a belay.Assignment) {
	t.Helper()
	if err := x.Settle(t.Context(), belay.Settlement{Lease: a.Lease, Op: belay.OpID(a.Lease.Secret),
		Outcome: belay.OutcomeSucceeded}); err != nil {
		t.Fatal(err)
	}
}

// soon is the time within which hints (messages about changes) must arrive, on a busy machine too.
// A server that polls rarely would find the change after a minute.
const soon = 20 * time.Second

// within checks that something took no longer than the duration soon.
func within(t testing.TB, what string, since time.Time) {
	t.Helper()
	if took := time.Since(since); took > soon {
		t.Errorf("%s took %s", what, took)
	}
}

// parked sends a claim, which waits for work, to a server and returns a channel with the reply.
func (x server) parked(t testing.TB, id belay.WorkerID, number int64) <-chan belay.ClaimReply {
	t.Helper()
	told := make(chan belay.ClaimReply, 1)
	go func() {
		r, err := x.Claim(context.Background(), belay.ClaimRequest{
			Worker: id, Number: number, Slots: 1, Wait: 25 * time.Second,
		})
		if err != nil {
			t.Error(err)
		}
		told <- r
	}()
	return told
}

// assigned waits for the reply to a parked claim, and claims again while the reply only requests a heartbeat: on a busy
// machine a server may lose its connection for hints, and then requests one from all workers.
func (x server) assigned(t testing.TB, id belay.WorkerID, number int64, told <-chan belay.ClaimReply) belay.ClaimReply {
	t.Helper()
	r := <-told
	for r.Attention && len(r.Assignments) == 0 {
		r = <-x.parked(t, id, number)
	}
	return r
}

// An execution that is submitted at one server starts at once on a worker that waits at another
// server. A caller that waits at the first server for the end of the execution gets its result at
// once. The servers send each other hints (messages about changes) for this.
func TestASubmissionStartsAtAnotherServer(t *testing.T) {
	a, b := two(t)
	w := b.open(t, "w", "x", time.Minute)
	for n := range int64(3) {
		told := b.parked(t, w, n+1)
		at := time.Now()
		id := a.submit(t, "x")
		r := b.assigned(t, w, n+1, told)
		within(t, "the start", at)
		if len(r.Assignments) != 1 {
			t.Fatalf("the worker got %+v", r)
		}
		ended := make(chan belay.Execution, 1)
		go func() {
			x, err := a.Await(context.Background(), id, 25*time.Second)
			if err != nil {
				t.Error(err)
			}
			ended <- x
		}()
		events := make(chan int, 1)
		go func() {
			all, err := a.Events(context.Background(), belay.EventQuery{
				Execution: id, After: 2, Wait: 25 * time.Second,
			})
			if err != nil {
				t.Error(err)
			}
			events <- len(all)
		}()
		at = time.Now()
		b.settle(t, r.Assignments[0])
		if x := <-ended; x.State != belay.Succeeded {
			t.Errorf("it ended %s", x.State)
		}
		within(t, "the end", at)
		if n := <-events; n != 1 {
			t.Errorf("%d events", n)
		}
		within(t, "the event", at)
	}
}

// A call that submits executions wakes only workers that can claim one of them, however many lanes
// they are in. A worker of another server that can claim none of them gets no request for a
// heartbeat.
func TestASubmissionToManyLanesWakesOnlyWorkersThatTakeIt(t *testing.T) {
	a, b := two(t)
	told := b.parked(t, b.open(t, "w", "mine", time.Minute), 1)
	all := make([]belay.Submission, 150)
	for i := range all {
		all[i] = belay.Submission{Workflow: "x", Queue: fmt.Sprint("q", i)}
	}
	for range 3 {
		if _, err := a.Submit(t.Context(), all...); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now()
	a.submit(t, "mine")
	if r := <-told; len(r.Assignments) != 1 {
		t.Errorf("the worker got %+v", r)
	}
	within(t, "the start", at)
}

// A delayed execution starts when it is due, also if the worker waits at another server.
func TestADelayedExecutionStartsAtAnotherServer(t *testing.T) {
	a, b := two(t)
	w := b.open(t, "w", "x", time.Minute)
	told := b.parked(t, w, 1)
	at := time.Now()
	out, err := a.Submit(t.Context(), belay.Submission{Workflow: "x", DueAt: at.Add(300 * time.Millisecond)})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	r := b.assigned(t, w, 1, told)
	if took := time.Since(at); len(r.Assignments) != 1 || took < 250*time.Millisecond || took > soon {
		t.Errorf("it began after %s: %+v", took, r)
	}
}

// An operator's action at one server on an execution or a session reaches the worker that waits at
// another server: the worker's claim returns with a request for a heartbeat, and the reply to the
// heartbeat contains the action.
func TestControlReachesAWorkerAtAnotherServer(t *testing.T) {
	a, b := two(t)
	w := a.open(t, "w", "x", time.Minute) // server b reads the session when the worker uses b
	id := a.submit(t, "x")
	won := b.won(t, w, 1)
	beat := belay.Heartbeat{Worker: w, ClaimSeen: 1, Holds: []belay.Held{{Execution: id, Token: won.Lease.Token}}}
	for _, c := range []struct {
		name string
		act  func() error
		told func(belay.HeartbeatReply) bool
	}{
		{"pause", func() error {
			_, err := a.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionPause})
			return err
		}, func(r belay.HeartbeatReply) bool { return len(r.Pause) == 1 }},
		{"cancel", func() error {
			_, err := a.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionCancel})
			return err
		}, func(r belay.HeartbeatReply) bool { return len(r.Cancel) == 1 }},
		{"signal", func() error { return a.Signal(t.Context(), belay.SignalRequest{Execution: id, Name: "s"}) },
			func(r belay.HeartbeatReply) bool { return len(r.Signals) == 1 }},
		{"drain", func() error {
			return a.Drain(t.Context(), w)
		}, func(r belay.HeartbeatReply) bool { return r.Drain }},
	} {
		told := b.parked(t, w, 2)
		at := time.Now()
		if err := c.act(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if r := <-told; !r.Attention {
			t.Errorf("%s: the worker got %+v", c.name, r)
		}
		within(t, c.name, at)
		if r, err := b.Heartbeat(t.Context(), beat); err != nil || !c.told(r) {
			t.Errorf("%s: the heartbeat says %+v, %v", c.name, r, err)
		}
	}
}

// If a key is made or revoked at one server, the other servers know it at once.
func TestAKeyCountsAtAnotherServer(t *testing.T) {
	a, b := two(t)
	if has, err := b.HasKeys(t.Context()); err != nil || has {
		t.Fatal(has, err)
	}
	key, err := a.CreateKey(t.Context(), belay.KeySpec{Name: "k", Scopes: []belay.Scope{belay.ScopeRead}})
	if err != nil {
		t.Fatal(err)
	}
	const heard = 4 * time.Second // shorter than the five seconds that it takes without a hint
	eventually(t, heard, "the key counts", func() bool {
		_, err := b.KeyOf(t.Context(), key.Secret)
		return err == nil
	})
	if err := a.RevokeKey(t.Context(), belay.Revocation{Key: key.ID}); err != nil {
		t.Fatal(err)
	}
	eventually(t, heard, "it counts no more", func() bool {
		_, err := b.KeyOf(t.Context(), key.Secret)
		return belay.CodeOf(err) == belay.CodeUnauthorized
	})
}

// eventually waits until f is true, and fails the test after the time in within.
func eventually(t testing.TB, within time.Duration, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !f(); <-tick.C {
		if time.Since(began) > within {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// The loss of every hint (a message about a change) changes only how long things take (guarantee
// G14): servers that receive no hints find all changes by polling.
func TestServersWithoutHintsFindEverything(t *testing.T) {
	url := database(t)
	slow := func(o *engine.Options) { o.SlowPoll = 300 * time.Millisecond }
	a, b := start(t, url, withoutHints, slow), start(t, url, withoutHints, slow)
	w := b.open(t, "w", "x", time.Minute)
	told := b.parked(t, w, 1)
	id := a.submit(t, "x")
	r := <-told
	if len(r.Assignments) != 1 {
		t.Fatalf("the worker got %+v", r)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if x := a.await(t, id); x.State != belay.Succeeded {
			t.Errorf("it ended %s", x.State)
		}
	})
	all.Go(func() {
		events, err := a.Events(t.Context(), belay.EventQuery{Execution: id, After: 2, Wait: 20 * time.Second})
		if err != nil || len(events) != 1 {
			t.Errorf("events %+v, %v", events, err)
		}
	})
	b.settle(t, r.Assignments[0])
	all.Wait()
}

// lossyHints is a store that loses its connection for hints (messages about changes) and reports
// that.
type lossyHints struct{ store.Store }

// Listen reports that hints are lost, and sends none.
func (lossyHints) Listen(ctx context.Context, onHint func(store.Hint)) error {
	onHint(store.Hint{Lost: true})
	onHint(store.Hint{Down: true})
	<-ctx.Done()
	return ctx.Err()
}

// A server that has learned that it receives no hints (messages about changes) checks everything
// once a second, long before its slow poll.
func TestAServerThatKnowsItGetsNoHintsPollsOften(t *testing.T) {
	url := database(t)
	a, b := start(t, url, withoutHints, pollRarely), start(t, url, func(s store.Store) store.Store {
		return lossyHints{s}
	}, pollRarely)
	w := b.open(t, "w", "x", time.Minute)
	for n := range int64(2) {
		told := b.parked(t, w, n+1)
		at := time.Now()
		id := a.submit(t, "x")
		r := <-told
		for r.Attention {
			r = b.claim(t, w, n+1)
		}
		if len(r.Assignments) != 1 {
			t.Fatalf("the worker got %+v", r)
		}
		within(t, "the start", at)
		at = time.Now()
		a.settle(t, r.Assignments[0])
		if x := b.await(t, id); x.State != belay.Succeeded {
			t.Errorf("it ended %s", x.State)
		}
		within(t, "the end", at)
	}
}

// A server whose connection for hints (messages about changes) is cut connects again, and reads
// what it may have missed.
func TestAServerReconnectsForHints(t *testing.T) {
	a, b := two(t)
	w := b.open(t, "w", "x", time.Minute)
	for n := range int64(3) {
		told := b.parked(t, w, n+1)
		at := time.Now()
		cutListeners(t, a.url)
		a.submit(t, "x")
		r := <-told
		for r.Attention { // after each lost connection the server requests a heartbeat from its workers
			r = b.claim(t, w, n+1)
		}
		if len(r.Assignments) != 1 {
			t.Fatalf("the worker got %+v", r)
		}
		within(t, "the start", at)
		b.settle(t, r.Assignments[0])
	}
}

// cutListeners ends the connections on which servers listen for hints.
func cutListeners(t testing.TB, url string) {
	t.Helper()
	if _, err := pgtest.Shared(t).Query(nameOf(url),
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'belay hints' AND "+
			"datname = current_database()"); err != nil {
		t.Fatal(err)
	}
}

// nameOf returns the name of the database in a URL.
func nameOf(url string) string {
	path, _, _ := strings.Cut(url, "?")
	return path[strings.LastIndexByte(path, '/')+1:]
}
