package promise

import "github.com/belaydev/belay"

// G1 checks that one fenced owner writes at a time. The tokens of an execution strictly increase,
// across generations, restarts and crashes. A run begins only after the end of the run before it,
// and each write of an owner has the token of the newest claim. No two claims get the same token,
// even if the store has lost the first claim.
func G1(f *Finding) {
	f.claimedOnce()
	for _, s := range f.History.Stories {
		f.tokens(s)
	}
}

func (f *Finding) claimedOnce() {
	type claim struct {
		worker belay.WorkerID
		number int64
	}
	first := make(map[belay.RunID]claim)
	for i := range f.History.Told {
		e := &f.History.Told[i]
		if e.End != OK || !e.won() {
			continue
		}
		id, this := belay.RunID{Execution: e.Execution, Token: e.Token}, claim{e.Worker, e.Number}
		if old, again := first[id]; again && old != this {
			f.Violation(f.History.Story(e.Execution), "token %d was given to claim %d of %s and to claim %d of %s",
				e.Token, old.number, old.worker, this.number, this.worker)
		}
		first[id] = this
	}
}

func (f *Finding) tokens(s *Story) {
	var token belay.Token
	open, started := false, false
	for i := range s.Events {
		ev := &s.Events[i]
		switch {
		case ev.Kind == "started" && open && !started && ev.Token == token:
			started = true // an earlier event had scheduled the run
		case begins(ev):
			f.OK()
			if ev.Token <= token || ev.Token >= 1<<53 {
				f.Violation(s, "token %d was given at seq %d after %d", ev.Token, ev.Seq, token)
			}
			if open {
				f.Violation(s, "token %d was given at seq %d while the run of %d had not ended", ev.Token, ev.Seq,
					token)
			}
			token, open, started = max(token, ev.Token), true, ev.Kind == "started"
		case ev.Token == 0 && IsSave(ev) && token != 0:
			f.Violation(s, "%s at seq %d carries no token", ev.Kind, ev.Seq)
		case ev.Token == 0:
		case ev.Token != token || !open:
			f.Violation(s, "%s at seq %d carries token %d; the newest is %d, its run open: %t", ev.Kind, ev.Seq,
				ev.Token, token, open)
		case !IsSave(ev):
			open = false
		}
	}
	if s.Execution.Token != token {
		f.Violation(s, "its token is %d and the newest claim had %d", s.Execution.Token, token)
	}
}
