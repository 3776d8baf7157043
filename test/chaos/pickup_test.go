package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// pickedUpBy is the time within which a due execution must run if a worker that can run it is idle.
// It is far less than the interval of the engine's slow poll (its regular read of the store), which
// alone would find the execution if a wake-up were lost.
const pickedUpBy = time.Second

// slotLabel is the label by which an execution requires one particular worker.
const slotLabel = "slot"

// probe runs when all executions have ended and all workers are idle. At every server, it submits
// for each worker an execution that only this worker can run. The worker is usually connected to
// another server.
func (w *world) probe(ctx context.Context, r *record) {
	c := &crowd{world: w}
	for _, at := range w.servers {
		for _, s := range w.workers {
			one := c.root([]op{{Do: "step", Ms: 1}})
			one.WorkerLabels = map[string]string{slotLabel: s.name}
			b := &recorder{at.client, "prober", w.history}
			if _, err := b.Submit(ctx, one); err != nil {
				w.t.Errorf("submit a probe at %s: %v", at.name, err)
			}
			if x, err := b.Await(ctx, one.ID, settling/4); err != nil || !x.State.Terminal() {
				r.Open = append(r.Open, fmt.Sprintf("%s, which only %s can run, is %s: %v", one.ID, s.name, x.State,
					err))
			}
			_ = pause(ctx, 2*pickedUpBy/time.Duration(len(w.servers)*len(w.workers)))
		}
	}
}

// pickup checks that a due execution is claimed promptly if an idle worker can run it. It counts
// only workers that no fault affected, at servers that no fault affected.
func pickup(f *finding) {
	for _, s := range f.stories {
		due, claimed, first := pickedUp(s)
		if s.Gates != nil { // an execution that names gates may have waited at a gate
			continue
		}
		if !first || !f.idle(s, due, claimed) {
			continue
		}
		f.OK()
		f.Count("picked up by an idle worker")
		if due.After(f.Settled) {
			f.Count("picked up by the only worker that can")
		}
		took := claimed.Sub(due)
		f.picked = append(f.picked, took)
		if took > pickedUpBy {
			f.Violation(s, "the execution was due at %s and claimed %s later, although a worker was idle",
				due.Format(clock), took)
		}
	}
}

// pickedUp returns when an execution was first due and when it was first claimed. It returns false
// if another event came between them.
func pickedUp(s *story) (due, claimed time.Time, first bool) {
	if s.Script == nil || len(s.Events) < 2 || s.Events[0].Kind != "submitted" || s.Events[1].Kind != "started" {
		return due, claimed, false
	}
	return s.Events[0].At, s.Events[1].At, true
}

// place is one session of a worker, with the runs of this session.
type place struct {
	session *belay.Worker
	slot    string
	far     bool // the connection of this worker may have faults
	server  string
	runs    []span
	rest    []span // periods in which the worker claims nothing because of a fault of the worker or of its server
}

// settled is the time after a fault of a worker during which the worker does not count as idle.
const settled = 2 * time.Second

// idle reports whether at least one worker that can run an execution had free slots during the
// whole time between from and to.
func (b *book) idle(s *story, from, to time.Time) bool {
	calm := from.After(b.Settled)
	if from.Before(b.Began) || to.After(b.Healed) && !calm || b.disturbed(from.Add(-settled), to) {
		return false
	}
	slot, one := s.Execution.WorkerLabels[slotLabel]
	return slices.ContainsFunc(b.allPlaces(), func(p *place) bool {
		return (!one || p.slot == slot) && (calm || !p.far) && p.idle(from, to)
	})
}

func (p *place) idle(from, to time.Time) bool {
	w := p.session
	if from.Before(w.OpenedAt.Add(settled)) || !w.EndedAt.IsZero() && to.After(w.EndedAt) ||
		during(p.rest, from.Add(-settled), to) {
		return false
	}
	n := 0
	for _, r := range p.runs {
		if r.From.Before(to) && r.To.After(from.Add(-settled)) {
			n++
		}
	}
	return n < concurrency
}

func during(all []span, from, to time.Time) bool {
	return slices.ContainsFunc(all, func(s span) bool { return s.From.Before(to) && s.To.After(from) })
}

// allPlaces returns the sessions of all workers. The name of a session is the name of the worker's
// slot, a dot, and the number of the worker's process in that slot.
func (b *book) allPlaces() []*place {
	if b.places != nil {
		return b.places
	}
	by := make(map[belay.WorkerID]*place)
	for id, w := range b.sessions {
		slot, _, _ := strings.Cut(w.Name, ".")
		number, is := strings.CutPrefix(slot, "worker")
		n, err := strconv.Atoi(number)
		if !is || err != nil {
			continue
		}
		p := &place{session: w, slot: slot, far: slices.Contains(far, n), server: fmt.Sprint("server", n%b.Servers)}
		for _, h := range b.Harm {
			if h.What == slot {
				p.rest = append(p.rest, h)
			}
		}
		for _, t := range b.Trouble {
			if strings.HasSuffix(t.What, p.server) || t.What == "line" {
				p.rest = append(p.rest, t)
			}
		}
		by[id] = p
		b.places = append(b.places, p)
	}
	slices.SortFunc(b.places, func(p, q *place) int { return cmp.Compare(p.session.Name, q.session.Name) })
	for _, s := range b.stories {
		losses := 0
		for _, a := range s.Runs {
			p, run := by[a.Worker], span{s.ID.String(), a.At, b.Settled}
			if a.End != nil {
				run.To = a.End.At
			}
			if p != nil {
				p.runs = append(p.runs, run)
				// An execution that was lost twice in a row may be poison (it may kill its workers), so
				// a worker runs no other execution beside it.
				if losses >= 2 {
					p.rest = append(p.rest, run)
				}
			}
			if losses++; a.End == nil || a.End.Kind != belay.OutcomeLost.String() {
				losses = 0
			}
		}
	}
	return b.places
}
