package machine

import (
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// walker goes through an execution's history in order of seq and keeps what the
// promises are about.
type walker struct {
	f *faults
	k *keeper
	r record
	p belay.Policy // defaults filled in

	generation, attempts, losses int
	token                        belay.Token
	run                          *Run // open
	started                      bool
	notBefore                    Time // of the next run's begin
	cancelled                    bool // a cancel was accepted in this generation
	ended                        *end
	forgotten                    bool
	failed                       map[int]end // generations that failed
}

// end is how a generation ended.
type end struct {
	seq   int64
	token belay.Token // of the run that ended with it, if it had begun
	state belay.State
}

// checkHistory is G1, G2, G7, G8 and G15 over what one execution's rows tell:
// every seq is there once, tokens grow, every checkpoint lies within the run
// whose token it carries, runs begin no sooner than they may, budgets hold, and
// nothing but a reopening follows an end.
func checkHistory(f *faults, k *keeper, r record) {
	w := walk(f, k, r)
	e := r.execution
	for what, ok := range map[string]bool{
		"token":      e.Token == w.token,
		"generation": e.Generation == w.generation,
		"attempts":   e.Attempts == w.attempts,
		"losses":     counted(e.Losses, w.losses),
		"owner":      (w.run != nil) == (e.State == belay.Running || e.State == belay.Scheduled),
		"begin":      (w.run != nil && w.started) == (e.State == belay.Running),
		"end":        (w.ended != nil) == e.State.Terminal(),
		"state":      w.ended == nil || w.ended.state == e.State,
	} {
		if !ok {
			f.add("G4", "%s: its row and its history differ in %s: %+v", e.ID, what, *e)
		}
	}
	if w.cancelled && e.State != belay.Cancelled && e.CancelBy == 0 {
		f.add("G7", "%s was cancelled and is %s", e.ID, e.State)
	}
	if w.run != nil && w.run.Worker != e.Worker {
		f.add("G4", "%s is owned by %s and run by %s", e.ID, e.Worker, w.run.Worker)
	}
	for i, ev := range Events(r.history(), 0, 1<<30) {
		if ev.Seq != int64(i+1) {
			f.add("G15", "%s: event %d has seq %d", e.ID, i+1, ev.Seq)
			return
		}
	}
}

func walk(f *faults, k *keeper, r record) *walker {
	w := &walker{f: f, k: k, r: r, generation: 1, failed: make(map[int]end)}
	if r.execution.Policy != nil {
		w.p = *r.execution.Policy
	}
	w.p = Defaults(w.p)
	for seq := int64(2); seq <= r.execution.Seq; seq++ {
		if rows := w.step(seq); rows == 0 {
			f.add("G15", "%s: no row carries seq %d of %d", r.execution.ID, seq, r.execution.Seq)
		} else if rows > 1 {
			f.add("G15", "%s: %d rows carry seq %d", r.execution.ID, rows, seq)
		}
	}
	return w
}

// step takes the row of one seq; it answers how many transitions carry it. A
// run's end and the action that ended it are one.
func (w *walker) step(seq int64) int {
	rows := 0
	for _, run := range w.r.runs {
		if run.ScheduledSeq == seq || run.ScheduledSeq == 0 && run.StartedSeq == seq {
			at := run.StartedAt
			if run.ScheduledSeq != 0 {
				at = run.ScheduledAt
			}
			w.begin(run, at)
			rows++
		}
		if run.StartedSeq == seq {
			w.started = true
			if run.ScheduledSeq != 0 {
				rows++
			}
			if w.run != run {
				w.f.add("G1", "%s: run %d starts and is not the one assigned", run.Execution, run.Token)
			}
		}
	}
	ended := slices.IndexFunc(w.r.runs, func(x *Run) bool { return x.EndedSeq == seq })
	deed := slices.IndexFunc(w.r.deeds, func(x *Deed) bool { return x.Seq == seq })
	if ended >= 0 {
		w.end(w.r.runs[ended])
		rows++
	}
	if deed >= 0 {
		d := w.r.deeds[deed]
		if w.deed(d); ended < 0 || d.Token != w.r.runs[ended].Token {
			rows++
		}
	}
	for _, c := range w.r.checkpoints {
		if c.Seq == seq {
			w.checkpoint(c)
			rows++
		}
	}
	for _, s := range w.r.signals {
		if s.Seq == seq {
			rows++
			if w.ended != nil {
				w.f.add("G7", "%s: signal %d comes after the end", s.Execution, seq)
			}
		}
	}
	return rows
}

func (w *walker) begin(run *Run, at Time) {
	switch {
	case w.ended != nil:
		w.f.add("G7", "%s: run %d begins after the end", run.Execution, run.Token)
	case w.run != nil:
		w.f.add("G1", "%s: run %d begins while run %d is open", run.Execution, run.Token, w.run.Token)
	case run.Token <= w.token:
		w.f.add("G1", "%s: token %d follows token %d", run.Execution, run.Token, w.token)
	case at < w.notBefore:
		w.f.add("G8", "%s: run %d begins at %d, not before %d was promised", run.Execution, run.Token, at, w.notBefore)
	case run.Attempt != w.attempts+1 || run.Generation != w.generation:
		w.f.add("G8", "%s: run %d is attempt %d of generation %d, want %d of %d",
			run.Execution, run.Token, run.Attempt, run.Generation, w.attempts+1, w.generation)
	}
	w.run, w.started, w.token = run, false, max(run.Token, w.token)
}

func (w *walker) checkpoint(c *Checkpoint) {
	copiedByFork := c.Token == 0 && w.token == 0 && w.run == nil
	if !copiedByFork && (w.run == nil || !w.started || c.Token != w.run.Token) {
		w.f.add("G2", "%s: checkpoint %d carries token %d outside of that run", c.Execution, c.Seq, c.Token)
	}
	w.losses = 0
}

// counted reports whether so many losses may be counted of those in the history. From
// the third on some are not put down to the execution.
func counted(losses, all int) bool {
	return losses == all || losses >= suspectAfter && losses < all
}

func (w *walker) end(run *Run) {
	if w.run != run {
		w.f.add("G1", "%s: run %d ends and is not open", run.Execution, run.Token)
	}
	mustEnd := w.cancelled
	w.notBefore = 0
	switch run.Outcome {
	case belay.OutcomeFailed, belay.OutcomeTimedOut:
		w.attempts++
		w.losses = 0
		w.notBefore = run.EndedAt.Add(backoff(w.p, w.attempts))
		mustEnd = mustEnd || w.attempts >= w.p.MaxAttempts || run.Class == belay.ClassPermanent
	case belay.OutcomeLost:
		w.losses++
		w.notBefore = run.EndedAt.Add(w.p.LockDelay.D())
		mustEnd = mustEnd || w.p.MaxLosses <= suspectAfter && w.losses >= w.p.MaxLosses || w.p.OnLost == belay.Fail || w.lostOutside(run)
	}
	if mustEnd && !run.Final {
		w.f.add("G8", "%s: run %d (%s) should have been the last: %d attempts, %d losses, cancelled %v",
			run.Execution, run.Token, run.Outcome, w.attempts, w.losses, w.cancelled)
	}
	if run.Final {
		state := belay.Failed
		switch {
		case w.cancelled || run.Outcome == belay.OutcomeCancelled:
			state = belay.Cancelled
		case run.Outcome == belay.OutcomeSucceeded:
			state = belay.Succeeded
		}
		token := belay.Token(0)
		if w.started {
			token = run.Token
		}
		w.finish(end{run.EndedSeq, token, state})
	}
	w.run = nil
}

// lostOutside reports whether a lost run was owned from outside and nothing says
// that it should go on nevertheless.
func (w *walker) lostOutside(run *Run) bool {
	x, p := w.k.workers[run.Worker], w.r.execution.Policy
	return x != nil && x.Spec.External && (p == nil || p.OnLost == "")
}

func (w *walker) deed(d *Deed) {
	if w.forgotten {
		w.f.add("G7", "%s: %s at %d comes after it was forgotten", d.Execution, d.Kind, d.Seq)
	}
	switch belay.Action(d.Kind) {
	case "forget":
		if w.forgotten = true; w.ended == nil {
			w.f.add("G7", "%s: forgotten at %d while open", d.Execution, d.Seq)
		}
		return
	case belay.ActionRetry, belay.ActionRequeue:
		if w.ended == nil {
			w.f.add("G7", "%s: reopened at %d while open", d.Execution, d.Seq)
		}
		w.generation++
		w.attempts, w.losses, w.notBefore, w.cancelled, w.ended = 0, 0, 0, false, nil
		return
	case belay.ActionFork:
		return // it reads, and only says so
	case belay.ActionCancel:
		w.cancelled = true
	}
	if w.ended != nil && w.ended.seq != d.Seq {
		w.f.add("G7", "%s: %s at %d comes after the end", d.Execution, d.Kind, d.Seq)
	}
	if d.Final && w.ended == nil {
		state := belay.Failed
		if w.cancelled {
			state = belay.Cancelled
		}
		w.finish(end{d.Seq, 0, state})
	}
}

func (w *walker) finish(e end) {
	w.ended = &e
	if e.state == belay.Failed {
		w.failed[w.generation] = e
	}
}

// backoff is G8's formula: base·2^(n-1), capped.
func backoff(p belay.Policy, n int) (d time.Duration) {
	d = p.BackoffBase.D()
	for ; n > 1 && d < p.BackoffCap.D(); n-- {
		d *= 2
	}
	return min(d, p.BackoffCap.D())
}

// checkLetters is G10: a root's generation failed if and only if it left one
// dead letter, written with the end, and open until the next generation.
func checkLetters(f *faults, k *keeper, r record) {
	e := r.execution
	failed := walk(new(faults), k, r).failed
	if !e.Parent.IsZero() || e.Policy != nil && e.Policy.NoDeadLetters {
		failed = nil
	}
	for _, d := range r.letters {
		was, ok := failed[d.Generation]
		switch {
		case !ok:
			f.add("G10", "%s: a dead letter of generation %d, which did not fail", e.ID, d.Generation)
		case was.seq != d.Seq || was.token != d.Token:
			f.add("G10", "%s: dead letter %d says seq %d token %d, the end has %d and %d", e.ID, d.Generation, d.Seq, d.Token, was.seq, was.token)
		case (d.Resolution == "") != (d.Generation == e.Generation):
			f.add("G10", "%s: dead letter %d has resolution %q in generation %d", e.ID, d.Generation, d.Resolution, e.Generation)
		}
	}
	if len(r.letters) < len(failed) {
		f.add("G10", "%s: %d generations failed, %d dead letters", e.ID, len(failed), len(r.letters))
	}
}
