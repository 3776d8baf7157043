package runner

import (
	"encoding/json"

	"github.com/belaydev/belay/internal/definition"
)

// Progress shows where the tasks of an execution stand.
type Progress struct{ p *progress }

// Open reads the progress of a document in a generation of its execution from the state that the runner has saved; the
// state is nil if it has saved none. In a generation that no run has begun, it shows which tasks will run again.
func Open(d *definition.Document, generation int, repairs []Repair, state json.RawMessage) (*Progress, error) {
	p := newProgress(d, generation, repairs)
	if err := p.restore(state); err != nil {
		return nil, err
	}
	return &Progress{p}, nil
}

// Status is the status of a task or an item, as the runner has saved it.
type Status struct {
	// State is pending, running, succeeded, failed, skipped or blocked.
	State string
	// Key names the child that does the work, and Generation is the generation that started it.
	Key        string
	Generation int
	// Message is the error of a failed task.
	Message string
	// ByHand is the repair that skipped the task; nil if it was not skipped.
	ByHand *Repair
}

// Task returns the status of a task.
func (p *Progress) Task(id string) Status {
	t := p.p.byID[id]
	s := Status{State: t.status.String(), Key: id, Generation: p.p.generation, Message: t.message}
	if t.status == succeeded {
		s.Generation = t.generation
		s.ByHand = p.p.byHand(id, t.generation)
	}
	return s
}

// Items returns how many items a foreach has, how many of them have started, and how many of these have succeeded and
// failed. known is false while the list of the items was not computed.
func (p *Progress) Items(id string) (total, started, succeeded, failed int, known bool) {
	e := p.p.byID[id].each
	if e == nil {
		return 0, 0, 0, 0, false
	}
	started = e.Failed.count()
	failed = started
	for _, done := range e.Done {
		succeeded += done.count()
		started += done.count()
	}
	for i := range min(e.Next, e.Count) {
		if !e.ended(i) {
			started++
		}
	}
	return e.Count, started, succeeded, failed, true
}

// Item returns the status of an item of a foreach whose list is known.
func (p *Progress) Item(id string, item int) Status {
	e := p.p.byID[id].each
	s := Status{State: pending.String(), Key: itemKey(id, item), Generation: p.p.generation}
	switch g := e.generation(item); {
	case g > 0:
		s.State, s.Generation, s.ByHand = succeeded.String(), g, p.p.byHand(s.Key, g)
	case e.Failed.has(item):
		s.State = failed.String()
	case item < e.Next:
		s.State = running.String()
	}
	return s
}

// Renewed reports whether a foreach computes its list anew when it starts, so that its items are not known before.
func (p *Progress) Renewed(id string) bool { return p.p.byID[id].each == nil }
