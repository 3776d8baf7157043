package machine

import (
	"errors"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// checkHistories checks whether the histories that the public API shows keep the guarantees of
// docs/guarantees.md, and whether the rows agree with the histories.
func checkHistories(f *faults, k *keeper) {
	h := &promise.History{Sessions: make(map[belay.WorkerID]*belay.Worker, len(k.workers)), Pruned: true}
	for id, x := range k.workers {
		w := WorkerView(x)
		h.Sessions[id] = &w
	}
	for _, r := range k.records {
		if r.execution == nil {
			continue
		}
		rec := r.history()
		s := promise.NewStory(&promise.Tale{Execution: View(rec), Events: Events(rec, 0, 1<<30)})
		for _, d := range r.letters {
			s.Letters = append(s.Letters, promise.Letter{
				Execution: d.Execution, Generation: d.Generation, Seq: d.Seq, Token: d.Token, At: d.At.Time(),
				Resolution: d.Resolution,
			})
		}
		h.Stories = append(h.Stories, s)
		checkSeqs(f, r)
		if r.execution.Attempts != s.Failed {
			f.add("G4", "%s counts %d attempts that failed, and had %d", s.ID, r.execution.Attempts, s.Failed)
		}
		for _, run := range r.runs {
			if told := s.Run(run.Token); told != nil && told.Generation != run.Generation {
				f.add("G8", "%s: run %d is of generation %d, want %d", run.Execution, run.Token, run.Generation,
					told.Generation)
			}
		}
	}
	for _, broken := range h.Judge() {
		*f = append(*f, errors.New(broken))
	}
}

// checkSeqs checks that no two transitions have the same seq. The end of a run and the action that
// ended it count as one transition, as do a signal and the action that names its actor.
func checkSeqs(f *faults, r record) {
	carried := []int64{1}
	for _, run := range r.runs {
		named := slices.ContainsFunc(r.deeds, func(d *Deed) bool {
			return d.Seq == run.EndedSeq && d.Token == run.Token
		})
		for _, seq := range []int64{run.ScheduledSeq, run.StartedSeq, run.EndedSeq} {
			if seq != 0 && !(named && seq == run.EndedSeq) {
				carried = append(carried, seq)
			}
		}
	}
	for _, c := range r.checkpoints {
		carried = append(carried, c.Seq)
	}
	for _, s := range r.signals {
		carried = append(carried, s.Seq)
	}
	for _, d := range r.deeds {
		signed := slices.ContainsFunc(r.signals, func(s *Signal) bool { return s.Seq == d.Seq && s.Child.IsZero() })
		switch {
		case signed != (d.Kind == "signal"):
			f.add("G15", "%s: the action %s has the seq %d; a signal has it: %t", d.Execution, d.Kind, d.Seq, signed)
		case !signed:
			carried = append(carried, d.Seq)
		}
	}
	if n := len(unique(carried)); n != len(carried) {
		f.add("G15", "%s: %d rows carry %d seqs", r.execution.ID, len(carried), n)
	}
}
