package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// shared is a memory store in which another transaction has locked rows: a commit that needs one of
// these rows waits up to the limit in its context (store.Waiting), and then fails with ErrBusy.
type shared struct {
	store.Store
	mu      sync.Mutex
	held    store.Held
	unnamed bool // if set, the store cannot report which rows are locked
	urgent  bool // if set, only urgent commits wait
	busy    int  // number of commits that waited for locked rows
}

func newShared() *shared { return &shared{Store: memory.New(time.Now)} }

func (s *shared) hold(h store.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.busy = h, 0
}

func rows(all ...store.Row) store.Held {
	h := store.Held{Rows: make(map[store.Row]struct{})}
	for _, r := range all {
		h.Rows[r] = struct{}{}
	}
	return h
}

func (s *shared) needs(need machine.Need) store.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := store.Held{Rows: make(map[store.Row]struct{}), Tables: s.held.Tables, Shut: s.held.Shut}
	add := func(r store.Row) {
		if _, is := s.held.Rows[r]; is {
			h.Rows[r] = struct{}{}
		}
	}
	for _, id := range need.Workers {
		add(store.Row{Kind: store.RowSession, ID: id})
		add(store.Row{Kind: store.RowRenewal, ID: id})
	}
	for _, id := range need.Executions {
		add(store.Row{Kind: store.RowExecution, ID: id})
	}
	for _, k := range need.Keys {
		add(store.Row{Kind: store.RowKey, Key: k})
	}
	return h
}

// Held implements store.Holder.
func (s *shared) Held(_ context.Context, need machine.Need) (store.Held, error) {
	if s.unnamed {
		return store.Held{}, nil
	}
	return s.needs(need), nil
}

func (s *shared) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	waits := func() error {
		s.mu.Lock()
		s.busy++
		s.mu.Unlock()
		time.Sleep(store.WaitOf(ctx))
		return &belay.Error{Code: belay.CodeUnavailable, Err: store.ErrBusy}
	}
	if h := s.needs(need); (len(h.Rows) > 0 || h.Shut != 0) && (!s.urgent || store.IsUrgent(ctx)) {
		return waits()
	}
	locked := false
	err := s.Store.Commit(ctx, need, func(r *machine.Rows) *machine.Changes {
		c := decide(r)
		s.mu.Lock()
		defer s.mu.Unlock()
		if locked = len(c.Runs) > 0 && s.held.Tables&store.TableRuns != 0; locked {
			return &machine.Changes{}
		}
		return c
	})
	if locked {
		return waits()
	}
	return err
}

// submits counts how many submissions of the given number of callers are accepted in a second.
func submits(t *testing.T, e *engine.Engine, callers int) (accepted int) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if out, err := e.Submit(t.Context(), belay.Submission{Workflow: "bg"}); err == nil &&
					out[0].Err == nil {
					mu.Lock()
					accepted++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return accepted
}

func key(k string) store.Row {
	return store.Row{Kind: store.RowKey, Key: machine.Key{Workflow: "w", Key: k}}
}

// Keys that an application's transaction has locked do not delay submissions with other keys. A
// submission that needs a locked key is accepted when the key is free, or refused after a second.
func TestLockedKeysDelayOnlyTheirUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		e := engine.New(s, engine.Options{Committers: 2, Pulse: true})
		defer e.Close()
		alone := submits(t, e, 8)
		var held []store.Row
		for i := range 10 {
			held = append(held, key(fmt.Sprint(i)))
		}
		s.hold(rows(held...))
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					out, _ := e.Submit(ctx, belay.Submission{Workflow: "w", IdempotencyKey: fmt.Sprint(i)})
					if err := out[0].Err; ctx.Err() == nil && (belay.CodeOf(err) != belay.CodeUnavailable ||
						!errors.Is(err, store.ErrBusy)) {
						t.Errorf("with a locked key: %v", err)
					}
					if took := time.Since(began); took > 2*time.Second {
						t.Errorf("it was refused after %s", took)
					}
					time.Sleep(500 * time.Millisecond)
				}
			})
		}
		time.Sleep(2 * time.Second)
		if beside := submits(t, e, 8); beside < alone*9/10 {
			t.Errorf("%d submissions were accepted in a second with ten locked keys, %d without", beside, alone)
		}
		stop()
		all.Wait()
		answer := make(chan error, 1)
		go func() {
			out, err := e.Submit(t.Context(), belay.Submission{Workflow: "w", IdempotencyKey: "0"})
			answer <- errors.Join(err, out[0].Err)
		}()
		time.Sleep(300 * time.Millisecond)
		s.hold(store.Held{})
		if err := <-answer; err != nil {
			t.Errorf("when the key is free: %v", err)
		}
	})
}

// While a table is locked, commands that do not need the table are committed; commands that need it
// are committed when it is free. No session is lost.
func TestALockedTableDelaysOnlyItsUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		s := newShared()
		e := engine.New(s, engine.Options{Committers: 2, Pulse: true})
		defer e.Close()
		w, a := worker(t, e, ttl)
		beat := belay.Heartbeat{
			Worker: w.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: a.Lease.Execution, Token: a.Lease.Token}},
		}
		s.hold(store.Held{Tables: store.TableRuns})
		end := belay.Settlement{Lease: a.Lease, Op: belay.OpID{1}, Outcome: belay.OutcomeSucceeded}
		for range 10 {
			err := e.Settle(t.Context(), end)
			refusal(t, err, belay.CodeUnavailable, "")
			end.Repeat = true
			began := time.Now()
			must[belay.HeartbeatReply](t)(e.Heartbeat(t.Context(), beat))
			submit(t, e)
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("a heartbeat and a submission took %s", took)
			}
		}
		done := make(chan error, 1)
		go func() { done <- e.Settle(t.Context(), end) }()
		time.Sleep(500 * time.Millisecond)
		s.hold(store.Held{})
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Guarantee G6 (losses are detected in time): a session whose row another transaction has locked is
// not ended while its heartbeat waits for the row, although other sessions can be renewed. When the
// row is free, the heartbeat renews the session from the time at which the heartbeat arrived.
func TestASessionLivesWhileItsHeartbeatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		s := newShared()
		s.urgent = true // only urgent commits wait, so the end of the session could be written
		e := engine.New(s, engine.Options{Committers: 2, Pulse: true})
		defer e.Close()
		w, a := worker(t, e, ttl)
		other := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "other", Workflows: noop, TTL: belay.Duration(ttl),
		}))
		beat := belay.Heartbeat{
			Worker: w.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: a.Lease.Execution, Token: a.Lease.Token}},
		}
		time.Sleep(ttl / 2)
		must[belay.HeartbeatReply](t)(e.Heartbeat(t.Context(), belay.Heartbeat{Worker: other.ID}))
		s.hold(rows(store.Row{Kind: store.RowRenewal, ID: w.ID}))
		answer := make(chan error, 1)
		go func() {
			_, err := e.Heartbeat(t.Context(), beat)
			answer <- err
		}()
		for range 4 {
			time.Sleep(ttl / 2)
			must[belay.HeartbeatReply](t)(e.Heartbeat(t.Context(), belay.Heartbeat{Worker: other.ID}))
		}
		s.hold(store.Held{})
		if err := <-answer; err != nil {
			t.Errorf("a heartbeat that waited for its row: %v", err)
		}
		if got := state(t, e, a.Lease.Execution); got != belay.Running {
			t.Errorf("its execution is %s", got)
		}
	})
}

// If the store cannot report which rows are locked, the engine finds the blocked command by trying
// parts of the batch. The other commands are delayed only for a moment.
func TestABlockedCommandIsFoundByTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		s.unnamed = true
		e := engine.New(s, engine.Options{})
		defer e.Close()
		s.hold(rows(key("held")))
		answers := make(chan error, 101)
		for i := range 100 {
			go func() {
				sub := belay.Submission{Workflow: "w", IdempotencyKey: fmt.Sprint(i)}
				if i == 40 {
					sub.IdempotencyKey = "held"
				}
				out, err := e.Submit(t.Context(), sub)
				if i == 40 {
					err = errors.Join(err, out[0].Err)
					if !errors.Is(err, store.ErrBusy) {
						t.Errorf("with the locked key: %v", err)
					}
					err = nil
				} else {
					err = errors.Join(err, out[0].Err)
				}
				answers <- err
			}()
		}
		for range 100 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
	})
}

// A command that is blocked by another transaction when the engine stops is refused and gets an
// answer.
func TestABlockedCommandIsRefusedAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		e := engine.New(s, engine.Options{})
		s.hold(rows(key("held")))
		answer := make(chan error, 1)
		go func() {
			out, err := e.Submit(t.Context(), belay.Submission{Workflow: "w", IdempotencyKey: "held"})
			answer <- errors.Join(err, out[0].Err)
		}()
		time.Sleep(400 * time.Millisecond)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := <-answer; !errors.Is(err, store.ErrBusy) {
			t.Errorf("got %v", err)
		}
	})
}
