package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
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

// gates is a memory store that holds commits back until the test lets them pass, one at a time.
type gates struct {
	store.Store
	mu     sync.Mutex
	closed bool // if set, ordinary commits wait
	shut   bool // if set, urgent commits wait
	next   chan struct{}
	wrote  []string // the contents of each commit
}

func newGates() *gates { return &gates{Store: memory.New(time.Now), next: make(chan struct{})} }

func (g *gates) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	g.mu.Lock()
	waits := g.closed
	if store.IsUrgent(ctx) {
		waits = g.shut
	}
	g.mu.Unlock()
	if waits {
		<-g.next
	}
	return g.Store.Commit(ctx, need, func(r *machine.Rows) *machine.Changes {
		c := decide(r)
		g.mu.Lock()
		defer g.mu.Unlock()
		if !c.Empty() {
			size := 0
			for _, k := range c.Checkpoints {
				size += len(k.Data)
			}
			g.wrote = append(g.wrote, fmt.Sprintf("executions %d workers %d checkpoints %d bytes %d", len(c.Executions),
				len(c.Workers), len(c.Checkpoints), size))
		}
		return c
	})
}

func (g *gates) set(closed, shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.shut, g.wrote = closed, shut, nil
}

// one lets one commit pass, and waits for its end.
func (g *gates) one() {
	g.next <- struct{}{}
	synctest.Wait()
}

// all lets all commits pass from now on.
func (g *gates) all() {
	g.set(false, false)
	close(g.next)
	synctest.Wait()
}

// submitMany submits n executions without waiting for the answers, each by its own call.
func submitMany(t *testing.T, e *engine.Engine, n int) {
	t.Helper()
	for range n {
		go func() { _, _ = e.Submit(t.Context(), belay.Submission{Workflow: "bulk"}) }()
	}
	synctest.Wait()
}

// A heartbeat is in the next batch, however many submissions arrived before the heartbeat. Without
// this rule, a heartbeat that was sent on time counted as late behind 200,000 submissions.
func TestAHeartbeatIsWrittenBeforeEarlierSubmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		e := engine.New(g, engine.Options{MaxBatch: 10})
		defer e.Close()
		s, a := worker(t, e, 3*time.Second)
		g.set(true, true)
		submitMany(t, e, 100)
		answers := make(chan error, 2)
		go func() {
			_, err := e.Heartbeat(t.Context(), belay.Heartbeat{
				Worker: s.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: a.Lease.Execution, Token: a.Lease.Token}},
			})
			answers <- err
		}()
		go func() {
			_, err := e.Save(t.Context(), belay.Save{Lease: a.Lease, Kind: belay.KindStep, Key: "k"})
			answers <- err
		}()
		synctest.Wait()
		g.one() // lets the commit in progress pass
		g.one() // lets the next commit pass
		for range 2 {
			select {
			case err := <-answers:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Errorf("the next batch, which wrote %v, had not both of them", g.wrote)
			}
		}
		g.all()
	})
}

// Every class gets a part of each batch, so that no accepted command waits for ever behind more
// urgent ones.
func TestEveryClassGetsAPartOfEachBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		e := engine.New(g, engine.Options{MaxBatch: 16})
		defer e.Close()
		_, a := worker(t, e, time.Hour)
		g.set(true, true)
		for i := range 100 {
			go func() {
				_, _ = e.Save(t.Context(), belay.Save{Lease: a.Lease, Kind: belay.KindStep, Key: fmt.Sprint(i)})
			}()
		}
		submitMany(t, e, 100)
		g.one()
		g.set(true, true)
		g.one()
		if got, want := fmt.Sprint(g.wrote), "[executions 3 workers 0 checkpoints 14 bytes 0]"; got != want {
			t.Errorf("a batch of 16 wrote %s, want %s", got, want)
		}
		g.all()
	})
}

// If the store has a separate connection for urgent commits, heartbeats and marks of life (times
// that show that a server runs) are written while ordinary commits are stuck.
func TestHeartbeatsAreWrittenBesideAStuckBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		e := engine.New(g, engine.Options{Pulse: true})
		defer e.Close()
		s, a := worker(t, e, 3*time.Second)
		g.set(true, false)
		submitMany(t, e, 3)
		marks := e.Stats().Marks
		for range 20 {
			time.Sleep(time.Second)
			if _, err := e.Heartbeat(t.Context(), belay.Heartbeat{Worker: s.ID, ClaimSeen: 1,
				Holds: []belay.Held{{Execution: a.Lease.Execution, Token: a.Lease.Token}}}); err != nil {
				t.Fatal(err)
			}
		}
		if e.Stats().Marks == marks {
			t.Error("no mark of life was written")
		}
		g.all()
		if err := e.Settle(t.Context(), belay.Settlement{Lease: a.Lease, Outcome: belay.OutcomeSucceeded}); err != nil {
			t.Error(err)
		}
	})
}

// Guarantee G6 (losses are detected in time): a heartbeat that this server has received in time
// renews the session, however long the heartbeat waits in this server, and during this wait the
// writes of its worker are accepted. No session is ended while a received heartbeat of the session
// is not written yet.
func TestAHeartbeatCountsFromWhenItIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		g := newGates()
		e := engine.New(g, engine.Options{Pulse: true})
		defer e.Close()
		s, a := worker(t, e, ttl)
		beat := belay.Heartbeat{
			Worker: s.ID, ClaimSeen: 1, Holds: []belay.Held{{Execution: a.Lease.Execution, Token: a.Lease.Token}},
		}
		time.Sleep(ttl - 100*time.Millisecond)
		g.set(false, true)
		late, wrote := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := e.Heartbeat(t.Context(), beat)
			late <- err
		}()
		synctest.Wait()
		time.Sleep(ttl)
		go func() {
			_, err := e.Save(t.Context(), belay.Save{
				Lease: a.Lease, Op: belay.OpID{1}, Kind: belay.KindStep, Key: "k", Data: json.RawMessage(`1`),
			})
			wrote <- err
		}()
		synctest.Wait()
		g.all()
		if err := <-late; err != nil {
			t.Errorf("a heartbeat that was received in time: %v", err)
		}
		if err := <-wrote; err != nil {
			t.Errorf("a write meanwhile: %v", err)
		}
		if got := state(t, e, a.Lease.Execution); got != belay.Running {
			t.Errorf("the execution is %s", got)
		}
		time.Sleep(ttl)
		_, err := e.Heartbeat(t.Context(), beat)
		refusal(t, err, belay.CodeLeaseLost, belay.CauseExpired)
	})
}

// A batch has a maximum size in bytes, because a database can write 8 MiB within the time limit of
// a commit, but not 600 megabytes.
func TestABatchHasAMaximumSizeInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		e := engine.New(g, engine.Options{})
		defer e.Close()
		_, a := worker(t, e, time.Hour)
		g.set(true, true)
		data := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 1<<20-2)...), '"')
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				if _, err := e.Save(t.Context(), belay.Save{Lease: a.Lease, Kind: belay.KindStep, Key: fmt.Sprint(i),
					Data: data}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		g.one()
		g.set(true, true)
		g.one()
		if got, want := fmt.Sprint(g.wrote), "[executions 1 workers 0 checkpoints 8 bytes 8388608]"; got != want {
			t.Errorf("a batch wrote %s, want %s", got, want)
		}
		g.all()
		all.Wait()
	})
}

// A batch that the store does not write in time is divided into halves, because a smaller batch may
// succeed.
func TestABatchThatTakesTooLongIsHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := &faulty{Store: memory.New(time.Now), hold: hold, refuse: func(c *machine.Changes) error {
			if len(c.Executions) > 10 {
				return &belay.Error{Code: belay.CodeUnavailable, Err: store.ErrSlow}
			}
			return nil
		}}
		e := engine.New(f, engine.Options{})
		defer e.Close()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				out, err := e.Submit(t.Context(), belay.Submission{Workflow: "w"})
				if err != nil || out[0].Err != nil {
					t.Error(err, out)
				}
			})
		}
		synctest.Wait()
		f.mu.Lock()
		f.hold = nil
		f.mu.Unlock()
		close(hold)
		all.Wait()
		if err := e.Writable(); err != nil {
			t.Errorf("the store takes writes, and yet: %v", err)
		}
	})
}
