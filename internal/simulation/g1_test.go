package simulation

import "github.com/belaydev/belay"

// g1: one fenced writer. The tokens of one execution strictly increase, for
// ever; a run begins only after the one before it has ended; every accepted
// effect carries the latest token.
func g1(f *finding) {
	for _, s := range f.stories {
		var latest belay.Token
		var running *attempt
		for _, e := range s.events {
			switch {
			case e.start != nil:
				f.ok()
				if t := e.start.Token; t <= latest || t >= 1<<53 {
					f.violation(s, e.c, "token %d was given after %d", t, latest)
				}
				if running != nil {
					f.violation(s, e.c, "token %d was given while %d was running", e.start.Token, running.Token)
				}
				latest, running = e.start.Token, e.start
			case e.end != nil:
				if e.end != running {
					f.violation(s, e.c, "the run of token %d ended while another or none was running", e.end.Token)
				}
				running = nil
			case e.token != 0 && (running == nil || e.token != running.Token):
				f.violation(s, e.c, "%s at seq %d carries token %d while the latest was %d", e.kind, e.seq, e.token, latest)
			}
		}
	}
}
