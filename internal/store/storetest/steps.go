package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The steps of a random walk (a long sequence of commands). The library rapid chooses among them.

// batch sends a few commands in one batch.
func (w *walker) batch(rt *rapid.T) {
	w.rt = rt
	var commands []machine.Command
	for range 1 + rapid.Uint64().Draw(rt, "commands")%8 {
		commands = append(commands, w.command())
	}
	w.send(rt, commands)
}

// follow sends the follow-up commands that earlier replies contain.
func (w *walker) follow(rt *rapid.T) {
	if len(w.following) == 0 {
		rt.Skip("there is no follow-up")
	}
	commands := w.following
	w.following = nil
	w.send(rt, commands)
}

// sweep sends the commands that an engine sends for work that is due.
func (w *walker) sweep(rt *rapid.T) {
	w.rt = rt
	w.seed()
	due, err := w.oracle.Due(w.t.Context(), w.number(1, 3))
	if err != nil {
		rt.Fatal(err)
	}
	var commands []machine.Command
	for _, id := range due.Workers {
		commands = append(commands, &machine.Expire{Worker: id})
	}
	for _, id := range due.Checks {
		commands = append(commands, &machine.Tick{Execution: id, Jitter: 0.5})
	}
	for _, l := range due.Lost {
		commands = append(commands, &l.Lose)
	}
	for _, id := range due.Children {
		commands = append(commands, &machine.CancelChild{Execution: id})
	}
	for _, id := range due.Unspent {
		commands = append(commands, &machine.Unspend{Execution: id})
	}
	needing := w.needing(rt)
	for i := range needing[:min(len(needing), 2)] {
		commands = append(commands, &needing[i])
	}
	for _, ref := range due.Objects {
		if ref.Kind != machine.GateObject {
			continue
		}
		commands = append(commands, &machine.Admit{Gate: belay.GateID(ref.Name), Heads: w.number(1, 3)})
	}
	if len(commands) == 0 {
		rt.Skip("nothing is due")
	}
	w.send(rt, commands)
}

// needing returns the due executions that fail without a worker, of the first lane that has one.
func (w *walker) needing(rt *rapid.T) []machine.NoWorker {
	lanes, err := w.oracle.Query(w.t.Context(), store.Query{Of: store.NeedingLanes})
	if err != nil {
		rt.Fatal(err)
	}
	for _, l := range lanes.Lanes {
		found, err := w.oracle.Query(w.t.Context(), store.Query{Of: store.Needing, Lane: l.Lane})
		if err != nil {
			rt.Fatal(err)
		}
		if len(found.Needing) > 0 {
			return found.Needing
		}
	}
	return nil
}

// time lets time pass, or sets the clock back.
func (w *walker) time(rt *rapid.T) {
	w.rt = rt
	w.seed()
	w.clock.Advance(one(w,
		time.Millisecond, time.Millisecond, 100*time.Millisecond, 100*time.Millisecond, time.Second, time.Second,
		time.Second,
		2*time.Second, 3*time.Second, 10*time.Second, time.Minute, -5*time.Second,
	))
	if now := w.clock.Now(); now.After(w.latest) {
		w.latest = now
	}
}

func (w *walker) mark(rt *rapid.T) {
	for _, s := range []store.Store{w.oracle, w.subject} {
		if _, err := fold(w.t.Context(), s, []machine.Command{&machine.Mark{}}); err != nil {
			rt.Fatalf("mark: %v", err)
		}
	}
}

func (w *walker) prune(rt *rapid.T) {
	w.rt = rt
	w.seed()
	before := w.oracle.Now().Add(-time.Duration(w.number(0, 20)) * time.Second)
	limit := w.number(0, 3)
	want, err := pruneAll(w.t.Context(), w.oracle, before, limit)
	if err != nil {
		rt.Fatal(err)
	}
	got, err := pruneAll(w.t.Context(), w.subject, before, limit)
	if diff := cmp.Diff(want, got, equal...); err != nil || diff != "" {
		rt.Fatalf("pruned (%v) (-memory +store):\n%s", err, diff)
	}
	if want.Executions > 0 {
		w.seen["prune"]++
	}
}

// pruneAll calls Prune, and sends a Forget for each tree that is too large, until there is nothing
// more to delete. It returns the total.
func pruneAll(ctx context.Context, s store.Store, before machine.Time, limit int) (all store.Pruned, err error) {
	for forgotten := true; forgotten; {
		forgotten = false
		for more := true; more; {
			p, err := s.Prune(ctx, store.Retention{Before: before, Letters: before}, limit)
			if err != nil {
				return all, err
			}
			all.Executions, all.Sessions = all.Executions+p.Executions, all.Sessions+p.Sessions
			all.Keys, all.Gates = all.Keys+p.Keys, all.Gates+p.Gates
			for _, id := range p.Large {
				if _, err := fold(ctx, s,
					[]machine.Command{&machine.Forget{Execution: id, Before: before}}); err != nil {
					return all, err
				}
				if !slices.Contains(all.Large, id) {
					all.Large, forgotten = append(all.Large, id), true
				}
			}
			more = p.More
		}
	}
	return all, nil
}

// list compares a filtered list of both stores.
func (w *walker) list(rt *rapid.T) {
	w.rt = rt
	w.seed()
	q := store.List{
		Workflow: one(w, "", "w", "v"), Key: one(w, "", "", "k0"),
		Queue: one(w, "", "default", "q"), Children: w.chance(2), Limit: w.number(0, 3),
		States: one(w, nil, nil, []belay.State{belay.Running}, []belay.State{belay.Pending, belay.Failed}),
	}
	if w.chance(3) {
		q.Labels = map[string]string{"a": "1"}
	}
	if w.chance(3) {
		q.Before = w.execution(0)
	}
	if w.chance(4) {
		q.Parent = w.execution(0)
	}
	if w.chance(2) {
		q.Scan = w.number(1, 6)
	}
	want, err := w.oracle.List(w.t.Context(), q)
	if err != nil {
		rt.Fatal(err)
	}
	got, err := w.subject.List(w.t.Context(), q)
	if err != nil {
		rt.Fatalf("list %+v: %v", q, err)
	}
	if diff := cmp.Diff(want, got, equal...); diff != "" {
		rt.Fatalf("list %+v differs (-memory +store):\n%s", q, diff)
	}
}

// reopen closes the store and opens it again, if the store is a Reopener.
func (w *walker) reopen(rt *rapid.T) {
	w.rt = rt
	w.seed()
	r, ok := w.subject.(Reopener)
	if !ok || !w.chance(5) {
		rt.Skip("not reopened")
	}
	if w.clock.Now().Before(w.latest) { // a restart forgets a time that no commit has written
		w.clock.Advance(w.latest.Sub(w.clock.Now()))
	}
	w.subject = r.Reopen(w.folder)
}
