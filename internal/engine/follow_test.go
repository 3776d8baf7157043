package engine_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// watcher is a follower of states. It checks each of its news.
type watcher struct {
	t    testing.TB
	wait chan struct{} // if not nil, the follower waits for it before it takes the next news
	end  func()
	done chan error

	mu sync.Mutex
	promise.States
	position string
	changed  chan struct{} // closed with the next news
}

// followed is something that can be followed.
type followed interface {
	Follow(ctx context.Context, q belay.StatusQuery, f func(belay.StatusNews) error) error
}

func watch(t testing.TB, b followed, q belay.StatusQuery) *watcher {
	t.Helper()
	w := &watcher{t: t, done: make(chan error, 1), changed: make(chan struct{})}
	w.Query = q
	w.run(b)
	return w
}

func (w *watcher) run(b followed) {
	ctx, end := context.WithCancel(context.Background())
	w.end = end
	go func() { w.done <- b.Follow(ctx, w.Query, w.report) }()
	w.t.Cleanup(func() {
		end()
		<-w.done
	})
}

func (w *watcher) report(n belay.StatusNews) error {
	w.mu.Lock()
	err := w.Follow(n)
	if n.Position != "" {
		w.position = n.Position
	}
	close(w.changed)
	w.changed = make(chan struct{})
	wait := w.wait
	w.mu.Unlock()
	if err != nil {
		w.t.Error(err)
		return err
	}
	if wait != nil {
		<-wait
	}
	return nil
}

// until waits until a condition on the follower's knowledge holds.
func (w *watcher) until(what string, holds func() bool) {
	w.t.Helper()
	over := time.After(30 * time.Second)
	for {
		w.mu.Lock()
		done, changed := holds(), w.changed
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case err := <-w.done:
			w.done <- err
			w.t.Fatalf("%s: the follower ended with %v", what, err)
		case <-over:
			w.mu.Lock()
			defer w.mu.Unlock() //nolint:gocritic,revive // the test ends here
			w.t.Fatalf("%s: not within half a minute; %d match, %d changes, snapshots %v", what, len(w.Known),
				len(w.Changes), w.Snapshots)
		}
	}
}

// begun waits for the end of the first snapshot.
func (w *watcher) begun() *watcher {
	w.t.Helper()
	w.until("the first snapshot", func() bool { return w.position != "" })
	return w
}

// short runs an execution with three changes of state: one server accepts it, the next gives it to an owner,
// and the next ends it.
func short(t testing.TB, servers []belay.Backend, n int) belay.ExecutionID {
	t.Helper()
	at := func(i int) belay.Backend { return servers[(n+i)%len(servers)] }
	out, err := at(0).Submit(t.Context(), belay.Submission{
		Workflow: "w", External: true, Labels: map[string]string{"n": fmt.Sprint(n)},
	})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	l, err := at(1).Lock(t.Context(), belay.LockRequest{
		Execution: out[0].ID, Owner: "me", TTL: belay.Duration(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := at(2).Settle(t.Context(), belay.Settlement{Lease: l.Lease, Outcome: belay.OutcomeSucceeded}); err != nil {
		t.Fatal(err)
	}
	return out[0].ID
}

var whole = []belay.State{belay.Pending, belay.Running, belay.Succeeded}

// causes returns the causes of the snapshots that the follower got.
func (w *watcher) causes() []belay.SnapshotCause {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.Snapshots)
}

// sawAll waits until the follower has seen the three changes of each execution. It returns false if the follower
// got another snapshot.
func (w *watcher) sawAll(ids []belay.ExecutionID) bool {
	w.t.Helper()
	w.until("all changes", func() bool { return len(w.Changes) >= 3*len(ids) || len(w.Snapshots) > 1 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.Snapshots) > 1 {
		return false
	}
	seen := make(map[belay.ExecutionID][]belay.State)
	for i := range w.Changes {
		seen[w.Changes[i].Execution] = append(seen[w.Changes[i].Execution], w.Changes[i].State)
	}
	for _, id := range ids {
		if !slices.Equal(seen[id], whole) {
			w.t.Errorf("%s: changes %v", id, seen[id])
		}
	}
	if len(w.Known) != 0 {
		w.t.Errorf("%d executions match", len(w.Known))
	}
	return true
}

// Followers at two servers see every change of every execution, in order, although each of the three changes
// of an execution is committed by another server than the change before it. A follower may get a snapshot
// instead if the hints of a server take longer than 2 s on a busy machine; the test then tries again.
func TestFollowersSeeTheChangesOfAllServers(t *testing.T) {
	a, b := two(t)
	servers := []belay.Backend{a, b}
	var far *watcher
	for round := 1; ; round++ {
		far = watch(t, a, belay.StatusQuery{Workflow: "w"}).begun()
		near := watch(t, b, belay.StatusQuery{Workflow: "w", Labels: map[string]string{"n": "7"}}).begun()
		var ids []belay.ExecutionID
		for n := range 60 {
			ids = append(ids, short(t, servers, n))
		}
		if far.sawAll(ids) && near.sawAll(ids[7:8]) {
			break
		}
		if round == 5 {
			t.Fatalf("a follower got snapshots in each of %d rounds: %v, %v", round, far.causes(), near.causes())
		}
		far.end()
		near.end()
	}
	third := start(t, a.url, withHints, pollRarely) // begins while others follow
	third.heard(t, a)
	for n := range 30 {
		short(t, []belay.Backend{a, b, third}, n)
	}
	far.until("the changes of the third server", func() bool {
		return len(far.Known) == 0 && (len(far.Changes) > 200 || len(far.Snapshots) > 1)
	})
}

// A follower gets a snapshot if changes of another server may be missing: because the connection for hints
// broke, or because a server that does not send changes has committed something.
func TestFollowersGetASnapshotForLostChanges(t *testing.T) {
	a, b := two(t)
	w := watch(t, a, belay.StatusQuery{Workflow: "w"}).begun()
	for i, lose := range []func(){
		func() { cutListeners(t, a.url) },
		func() {
			// a change of one execution, as a server sends it that does not know this protocol
			old := append([]byte{1}, make([]byte, 16+1+1+1+1+1)...)
			text := base64.RawStdEncoding.EncodeToString(append(old, 1, 2, 3, 4))
			notify := "SELECT pg_notify('belay', '" + text + "')"
			if _, err := pgtest.Shared(t).Query(nameOf(a.url), notify); err != nil {
				t.Fatal(err)
			}
		},
	} {
		lose()
		id := b.submit(t, "w")
		w.until("a snapshot", func() bool {
			return len(w.Snapshots) > i+1 && w.Snapshots[i+1] == belay.SnapshotLost &&
				w.Known[id].State == belay.Pending
		})
	}
}

// settled is a server whose executions change only by its tests.
func settled(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	e := engine.New(memory.New(time.Now), o)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// A follower that is too slow gets a snapshot, with this cause, and then knows the true states. It delays
// neither commits nor other followers.
func TestASlowFollowerGetsASnapshot(t *testing.T) {
	e := settled(t, engine.Options{StatusWindow: 10})
	slow := &watcher{
		t: t, done: make(chan error, 1), changed: make(chan struct{}), wait: make(chan struct{}),
	}
	slow.run(e)
	slow.until("the first snapshot", func() bool { return len(slow.Snapshots) == 1 })
	fast := watch(t, e, belay.StatusQuery{}).begun()
	var ids []belay.ExecutionID
	for n := range 20 {
		id := short(t, []belay.Backend{e}, n)
		ids = append(ids, id)
		fast.until("the end", func() bool { return slices.Equal(fast.Of(id), whole) })
	}
	if !fast.sawAll(ids) {
		t.Errorf("the fast follower got snapshots %v", fast.causes())
	}
	left := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "left"}))[0].ID
	close(slow.wait)
	slow.until("the true states", func() bool {
		return len(slow.Known) == 1 && slow.Known[left].State == belay.Pending
	})
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if !slices.Equal(slow.Snapshots, []belay.SnapshotCause{belay.SnapshotBegin, belay.SnapshotBehind}) {
		t.Errorf("snapshots %v", slow.Snapshots)
	}
}

// A snapshot has all executions that match, in several parts, but not more than a maximum number: then it
// says so and has the newest.
func TestSnapshotsAreBounded(t *testing.T) {
	e := settled(t, engine.Options{})
	const all = belay.MaxSnapshot + 500
	subs := make([]belay.Submission, 500)
	var newest belay.ExecutionID
	for n := 0; n < all; n += len(subs) {
		for i := range subs {
			subs[i] = belay.Submission{Workflow: "w", DueAt: time.Now().Add(time.Hour)}
			if n == 0 {
				subs[i].Queue = "old"
			}
		}
		out := must[[]belay.Submitted](t)(e.Submit(t.Context(), subs...))
		newest = out[len(out)-1].ID
	}
	for _, c := range []struct {
		q         belay.StatusQuery
		want      int
		truncated bool
	}{
		{belay.StatusQuery{}, belay.MaxSnapshot, true}, {belay.StatusQuery{Queue: "old"}, 500, false},
		{belay.StatusQuery{Queue: "default"}, belay.MaxSnapshot, false},
		{belay.StatusQuery{States: []belay.State{belay.Failed}}, 0, false},
	} {
		s := promise.States{Query: c.q}
		parts, most, truncated := 0, 0, false
		stop := errors.New("enough")
		err := e.Follow(t.Context(), c.q, func(n belay.StatusNews) error {
			if err := s.Follow(n); err != nil {
				return err
			}
			parts, most = parts+1, max(most, len(n.Snapshot.Executions))
			if truncated = n.Snapshot.Truncated; n.Snapshot.Last {
				return stop
			}
			return nil
		})
		_, has := s.Known[newest]
		if !errors.Is(err, stop) || len(s.Known) != c.want || truncated != c.truncated || most > 400 ||
			has != (c.want == belay.MaxSnapshot) {
			t.Errorf("%+v: %v; %d executions in %d parts of at most %d, truncated: %t, with the newest: %t", c.q, err,
				len(s.Known), parts, most, truncated, has)
		}
	}
}

// A server refuses followers above a maximum number, and says when to ask again.
func TestFollowersAreBounded(t *testing.T) {
	e := settled(t, engine.Options{Followers: 2})
	first := watch(t, e, belay.StatusQuery{}).begun()
	watch(t, e, belay.StatusQuery{}).begun()
	err := e.Follow(t.Context(), belay.StatusQuery{}, func(belay.StatusNews) error { return nil })
	var refused *belay.Error
	if !errors.As(err, &refused) || refused.Code != belay.CodeUnavailable || refused.RetryAfter <= 0 {
		t.Errorf("one more got %v", err)
	}
	first.end()
	first.done <- <-first.done
	watch(t, e, belay.StatusQuery{}).begun()
}

// unsure is a store that reports for some commits that it does not know whether they were written.
type unsure struct {
	store.Store
	mu   sync.Mutex
	lies bool
}

func (u *unsure) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	err := u.Store.Commit(ctx, need, decide)
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil && u.lies {
		return &belay.Error{Code: belay.CodeUnavailable, Message: "no answer"}
	}
	return err
}

// If the outcome of a commit is unknown, followers get a snapshot, which has the true states.
func TestFollowersGetASnapshotAfterAnUnknownCommit(t *testing.T) {
	s := &unsure{Store: memory.New(time.Now)}
	e := engine.New(s, engine.Options{})
	t.Cleanup(func() { _ = e.Close() })
	w := watch(t, e, belay.StatusQuery{}).begun()
	lie := func(on bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lies = on
	}
	lie(true)
	out, err := e.Submit(t.Context(), belay.Submission{Workflow: "w"})
	if err == nil && belay.CodeOf(out[0].Err) != belay.CodeUnavailable {
		t.Fatalf("the submission got %v", out[0])
	}
	lie(false)
	w.until("a snapshot", func() bool { return len(w.Snapshots) == 2 && len(w.Known) == 1 })
}

// slow is a store that is too slow for some commits, and then writes nothing.
type slow struct {
	store.Store
	now atomic.Bool
}

func (s *slow) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	if s.now.Load() {
		return &belay.Error{Code: belay.CodeUnavailable, Message: "too slow", Err: store.ErrSlow}
	}
	return s.Store.Commit(ctx, need, decide)
}

// A commit of which nothing was written is no reason for a snapshot.
func TestFollowersNeedNoSnapshotIfNothingWasWritten(t *testing.T) {
	s := &slow{Store: memory.New(time.Now)}
	e := engine.New(s, engine.Options{})
	t.Cleanup(func() { _ = e.Close() })
	w := watch(t, e, belay.StatusQuery{}).begun()
	s.now.Store(true)
	out, err := e.Submit(t.Context(), belay.Submission{Workflow: "w"})
	if err == nil && belay.CodeOf(out[0].Err) != belay.CodeUnavailable {
		t.Fatalf("the submission got %v", out[0])
	}
	s.now.Store(false)
	if !w.sawAll([]belay.ExecutionID{short(t, []belay.Backend{e}, 1)}) {
		t.Errorf("snapshots %v", w.causes())
	}
}

// Followers see that an execution is submitted again after it was deleted, also right after a snapshot that
// has the deleted one.
func TestFollowersSeeASecondLife(t *testing.T) {
	e := settled(t, engine.Options{})
	id := belay.ExecutionID{15: 1}
	live := func() {
		out := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{ID: id, Workflow: "w"}))
		if out[0].Err != nil {
			t.Fatal(out[0].Err)
		}
		must[belay.Execution](t)(e.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionCancel}))
	}
	lives := func(w *watcher, n int) {
		t.Helper()
		w.until("all lives", func() bool { return len(w.Of(id)) == 2*n })
		if len(w.Snapshots) != 1 {
			t.Errorf("snapshots %v", w.Snapshots)
		}
	}
	all := belay.StatusQuery{States: append(belay.ActiveStates(), belay.Cancelled)}
	first := watch(t, e, all).begun()
	live()
	lives(first, 1)
	later := watch(t, e, all).begun()
	must[belay.Execution](t)(e.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionDelete}))
	live()
	lives(first, 2)
	lives(later, 1)
}

// A Reader without an engine reports a snapshot whenever it finds a difference.
func TestAReaderFollowsByPolling(t *testing.T) {
	s := memory.New(time.Now)
	e := engine.New(s, engine.Options{})
	t.Cleanup(func() { _ = e.Close() })
	w := watch(t, engine.NewReader(s, time.Millisecond), belay.StatusQuery{})
	w.until("the first snapshot", func() bool { return len(w.Snapshots) == 1 })
	id := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "w"}))[0].ID
	w.until("a difference", func() bool { return w.Known[id].State == belay.Pending })
	must[belay.Execution](t)(e.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionCancel}))
	w.until("the end", func() bool { return len(w.Known) == 0 && len(w.Snapshots) >= 3 })
}
