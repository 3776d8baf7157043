package engine_test

import (
	"context"
	"slices"
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

// The commit that accepts executions also schedules them to workers, as many as these have slots, if the workers have
// claims at this server.
func TestTheCommitOfASubmissionSchedulesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 3)
		p.open("b", 3)
		p.claimBeside("a", 3)
		p.claimBeside("b", 3)
		for _, c := range []struct {
			submit, each int
			commits      int64
		}{{4, 2, 1}, {1, 1, 1}, {0, 0, 0}} {
			before := p.e.Stats().Commits
			all := make([]belay.Submission, c.submit)
			for i := range all {
				all[i] = belay.Submission{Queue: "sent", Workflow: "w"}
			}
			must[[]belay.Submitted](t)(p.e.Submit(t.Context(), all...))
			got := p.byWorker()
			if len(got["a"])+len(got["b"]) != c.submit || max(len(got["a"]), len(got["b"])) != c.each {
				t.Errorf("sent %v of %d", got, c.submit)
			}
			if n := p.e.Stats().Commits - before; n != c.commits {
				t.Errorf("%d commits for %d submissions, want %d", n, c.submit, c.commits)
			}
		}
		if got := p.send(3); len(got["a"])+len(got["b"]) != 1 {
			t.Errorf("sent %v to workers with one slot", got)
		}
	})
}

// laterStore answers commits that begin runs a second after it has written them.
type laterStore struct{ store.Store }

func (s laterStore) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	later := false
	err := s.Store.Commit(ctx, need, func(r *machine.Rows) *machine.Changes {
		c := decide(r)
		later = c != nil && slices.ContainsFunc(c.Runs, func(r *machine.Run) bool { return r.New })
		return c
	})
	if later {
		time.Sleep(time.Second)
	}
	return err
}

// No worker gets more messages than it has slots, although one commit that schedules executions to it has begun before
// the engine has seen the outcome of another one.
func TestTheSchedulerKeepsToTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPostOn(t, laterStore{memory.New(time.Now)})
		p.open("a", 1)
		p.claimBeside("a", 1)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := p.e.Submit(t.Context(), belay.Submission{Queue: "sent", Workflow: "w"})
				if err != nil {
					t.Error(err)
				}
			})
			time.Sleep(300 * time.Millisecond)
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		sent := p.byWorker()["a"]
		if len(sent) != 1 {
			t.Fatalf("%d messages for one slot", len(sent))
		}
		p.settle(p.accept(sent[0]), belay.Settlement{Outcome: belay.OutcomeSucceeded})
		time.Sleep(2 * time.Second)
		if got := p.byWorker()["a"]; len(got) != 1 {
			t.Errorf("%d messages for the slot that is free again", len(got))
		}
	})
}

// A claim that waits wins at most as many executions as its worker has slots that messages have not filled since.
func TestClaimsBesideMessagesKeepToTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 2)
		p.claimBeside("a", 2)
		var runs []belay.Assignment
		for _, m := range p.send(2)["a"] {
			runs = append(runs, p.accept(m))
		}
		p.submit(belay.Submission{Queue: "default"})
		p.submit(belay.Submission{Queue: "default"})
		if len(runs) != 2 || len(p.taken) != 0 {
			t.Fatalf("%d accepted and %d claimed with 2 slots", len(runs), len(p.taken))
		}
		p.settle(runs[0], belay.Settlement{Outcome: belay.OutcomeSucceeded})
		if len(p.taken) != 1 {
			t.Errorf("%d claimed when a slot is free", len(p.taken))
		}
	})
}

// A queue whose executions wait longer is not passed over by submissions to another one.
func TestSubmissionsDoNotPassOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.crew.open("w", belay.WorkerSpec{Capacity: 1, Queues: []string{"sent", "also"}})
		must[belay.Mailbox](t)(p.e.OpenMailbox(t.Context(), p.ids["w"]))
		p.claimBeside("w", 1)
		a := p.send(1)["w"][0]
		p.submit(belay.Submission{Queue: "also"})
		run := p.accept(a)
		go func() { // the submission and the end of the run meet
			_, _ = p.e.Submit(t.Context(), belay.Submission{Queue: "sent", Workflow: "w"})
		}()
		p.settle(run, belay.Settlement{Outcome: belay.OutcomeSucceeded})
		if got := p.byWorker()["w"]; len(got) != 1 || p.state(got[0].Execution).Queue != "also" {
			t.Errorf("sent %v, and not the execution that waits longer", got)
		}
	})
}

// deafStore is a store that several servers share, and whose hints are all lost.
type deafStore struct{ store.Store }

func (deafStore) Listen(ctx context.Context, _ func(store.Hint)) error {
	<-ctx.Done()
	return ctx.Err()
}

// The end of a run at another server gives the worker's claim at this server its slot back: with the next heartbeat,
// or when this server has seen no heartbeat for two intervals.
func TestClaimsBesideMessagesOfWorkersOfSeveralServers(t *testing.T) {
	for name, heartbeat := range map[string]bool{"heartbeat": true, "no heartbeat": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := deafStore{memory.New(time.Now)}
				p := newPostOn(t, shared)
				other := engine.New(shared, engine.Options{Courier: new(courier)})
				t.Cleanup(func() {
					if err := other.Close(); err != nil {
						t.Error(err)
					}
				})
				p.crew.open("a", belay.WorkerSpec{
					Capacity: 1, Queues: []string{"sent", "default"}, Heartbeat: belay.Duration(10 * time.Second),
				})
				must[belay.Mailbox](t)(p.e.OpenMailbox(t.Context(), p.ids["a"]))
				synctest.Wait()
				run := p.accept(p.send(1)["a"][0])
				p.claimBeside("a", 1)
				end := belay.Settlement{Lease: run.Lease, Outcome: belay.OutcomeSucceeded}
				if err := other.Settle(t.Context(), end); err != nil {
					t.Fatal(err)
				}
				p.submit(belay.Submission{Queue: "default"})
				if len(p.taken) != 0 {
					t.Fatal("this server knows of the end of the run")
				}
				if heartbeat {
					h := belay.Heartbeat{Worker: p.ids["a"], AcceptSeen: p.accepts}
					must[belay.HeartbeatReply](t)(p.e.Heartbeat(t.Context(), h))
				} else {
					time.Sleep(30 * time.Second)
				}
				synctest.Wait()
				if len(p.taken) != 1 {
					t.Errorf("%d claimed with a free slot", len(p.taken))
				}
			})
		})
	}
}

// lockedStore lets no commit that needs the execution end in time, as if another transaction had locked it.
type lockedStore struct {
	store.Store
	id *belay.ExecutionID
}

func (s lockedStore) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	if slices.Contains(need.Executions, *s.id) {
		return store.ErrSlow
	}
	return s.Store.Commit(ctx, need, decide)
}

// An execution that another transaction has locked does not keep the other executions of an accept from beginning.
func TestALockedOfferDelaysNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locked belay.ExecutionID
		p := newPostOn(t, lockedStore{memory.New(time.Now), &locked})
		p.open("a", 3)
		r := belay.AcceptRequest{Worker: p.ids["a"], Number: 1}
		for _, a := range p.send(3)["a"] {
			r.Offers = append(r.Offers, belay.Held{Execution: a.Execution, Token: a.Token})
		}
		locked = r.Offers[1].Execution
		out, err := p.e.Accept(t.Context(), r)
		if err != nil || len(out.Assignments) != 2 {
			t.Errorf("%d of 3 begin, %v", len(out.Assignments), err)
		}
		r.Offers = r.Offers[1:2]
		if out, err := p.e.Accept(t.Context(), r); err == nil {
			t.Errorf("the locked one begins: %v", out)
		}
	})
}
