package chaos

import "github.com/belaydev/belay"

// g1: one fenced writer. The tokens of an execution strictly increase, across
// generations, restarts and crashes; what an owner wrote carries the token of the
// newest claim, and was written before that run ended. No token is told to two
// claims, be the first of them forgotten by the store.
func g1(f *finding) {
	type claim struct {
		worker belay.WorkerID
		number int64
	}
	first := make(map[belay.RunID]claim)
	f.told("claim", ok, func(e *entry) {
		id, this := belay.RunID{Execution: e.Execution, Token: e.Token}, claim{e.Worker, e.Number}
		if old, again := first[id]; again && old != this {
			f.violation(f.byID[e.Execution], "token %d was given to claim %d of %s and to claim %d of %s", e.Token, old.number, old.worker, this.number, this.worker)
		}
		first[id] = this
	})
	for _, s := range f.stories {
		token, open := belay.Token(0), false
		for i := range s.Events {
			ev := &s.Events[i]
			switch {
			case ev.Kind == "started":
				if ev.Token <= token {
					f.violation(s, "token %d was claimed after %d", ev.Token, token)
				}
				if open {
					f.violation(s, "token %d was claimed while the run of %d had not ended", ev.Token, token)
				}
				token, open = ev.Token, true
				f.ok()
			case ev.Token == 0:
			case ev.Token != token || !open:
				f.violation(s, "%s at seq %d carries token %d; the newest is %d, its run open: %t", ev.Kind, ev.Seq, ev.Token, token, open)
			case !isSave(ev):
				open = false
			}
		}
		if s.Execution.Token != token {
			f.violation(s, "its token is %d and the newest claim had %d", s.Execution.Token, token)
		}
	}
}
