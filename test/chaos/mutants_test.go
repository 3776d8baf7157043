package chaos

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// mutant is a bug that is planted into a copy of a history.
type mutant struct {
	name  string
	meant string               // the promise whose checker must find the bug
	plant func(*planting) bool // plants the bug, or returns false if the history has no place for the bug
	on    string               // the only store for which the bug is planted; empty for every store
}

// mutantsOn returns the planted bugs for a store.
func mutantsOn(store string) []mutant {
	all := slices.Concat(mutants, lateMutants, retentionMutants, gateMutants, costMutants, modeMutants)
	return slices.DeleteFunc(all, func(m mutant) bool { return m.on != "" && m.on != store })
}

// planting is a copy of a history into which a bug is planted.
type planting struct {
	*record
	*book
}

// mutants are the planted bugs, at least one for each checker.
var mutants = []mutant{
	{"token that goes back", "G1", func(p *planting) bool {
		return p.event(func(s *story, ev *belay.Event) bool {
			return ev.Kind == "started" && ev.Token > s.Runs[0].Token
		},
			func(ev *belay.Event) { ev.Token = 1 })
	}, ""},
	{"token given twice", "G1", func(p *planting) bool {
		return p.entry(func(e *entry) bool { return e.Kind == "claim" && e.End == ok }, func(e *entry) {
			again := *e
			again.Number++
			p.record.Told = append(p.record.Told, again)
		})
	}, ""},
	{"checkpoint of a stale owner applied", "G1", func(p *planting) bool {
		return p.event(func(s *story, ev *belay.Event) bool { return promise.IsSave(ev) && ev.Token > s.Runs[0].Token },
			func(ev *belay.Event) { ev.Token-- })
	}, ""},
	{"stale settlement replayed and applied", "G1", func(p *planting) bool {
		return p.event(func(s *story, ev *belay.Event) bool {
			return ev.Kind == "succeeded" && ev.Token > s.Runs[0].Token
		}, func(ev *belay.Event) { ev.Token-- })
	}, ""},
	{"refused checkpoint that is there", "G2", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "save" && e.End == refused && e.Why != "" && p.byID[e.Execution] != nil
		}, func(e *entry) {
			s := p.byID[e.Execution]
			s.Events = append(s.Events, belay.Event{
				Seq: int64(len(s.Events) + 1), Kind: e.Check.String(), Name: e.Name, Token: e.Token, Data: e.Data,
			})
		})
	}, ""},
	{"refusal without a cause", "G2", func(p *planting) bool {
		return p.entry(func(e *entry) bool { return e.End == refused && e.Why != "" }, func(e *entry) { e.Why = "" })
	}, ""},
	{"owner refused", "G2", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "save" && e.End == ok && !e.Replayed && p.byID[e.Execution].Script != nil
		},
			func(e *entry) { e.End, e.Code, e.Why = refused, belay.CodeLeaseLost, belay.CauseExpired })
	}, ""},
	{"effect behind a newer claim", "G2", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "effect" && e.Token < p.byID[e.Execution].Execution.Token
		},
			func(e *entry) { e.At = e.At.Add(time.Hour) })
	}, ""},
	{"repeated operation with another answer", "G2", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "save" && e.End == ok && e.Replayed && strings.HasPrefix(e.Name, "ghost")
		},
			func(e *entry) { e.Seq++ })
	}, ""},
	{"acknowledged submission deleted", "G3", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "submit" && e.End == ok && p.byID[e.Named] != nil
		}, func(e *entry) {
			p.record.Tales = slices.DeleteFunc(p.record.Tales, func(t *tale) bool { return t.Execution.ID == e.Named })
		})
	}, ""},
	{"input that changed", "G3", func(p *planting) bool {
		return p.tale(func(s *story) bool {
			return s.Script != nil
		}, func(s *story) { s.Execution.Input = json.RawMessage(`[]`) })
	}, ""},
	{"acknowledged checkpoint with other data", "G3", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "save" && e.End == ok && e.Check == belay.KindStep && !p.byID[e.Execution].At(e.Seq).Pruned
		},
			func(e *entry) { p.byID[e.Execution].At(e.Seq).Data = json.RawMessage(`"something else"`) })
	}, ""},
	{"acknowledged end replaced by another", "G3", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "settle" && e.End == ok && e.Outcome == belay.OutcomeSuspended
		},
			func(e *entry) { p.byID[e.Execution].Run(e.Token).End.Kind = belay.OutcomeReleased.String() })
	}, ""},
	{"acknowledged signal lost", "G3", func(p *planting) bool {
		return p.entry(func(e *entry) bool { return e.Kind == "signal" && e.End == ok }, func(e *entry) {
			p.byID[e.Execution].Find("signal", func(ev *belay.Event) bool {
				return promise.Same(ev.Data, e.Data)
			}).Data = json.RawMessage(`1`)
		})
	}, ""},
	{"acknowledged cancel lost", "G3", func(p *planting) bool {
		lost := func(e *entry) func(*belay.Event) bool { return func(ev *belay.Event) bool { return ev.Text == e.Key } }
		return p.entry(func(e *entry) bool {
			return e.Kind == "control" && e.End == ok && p.byID[e.Execution].Find(string(belay.ActionCancel),
				lost(e)) != nil
		}, func(e *entry) {
			p.byID[e.Execution].Find(string(belay.ActionCancel), lost(e)).Kind = string(belay.ActionPause)
		})
	}, ""},
	{"execution without a submission", "G3", func(p *planting) bool {
		return p.tale(func(s *story) bool { return s.IsRoot() }, func(s *story) {
			p.record.Told = slices.DeleteFunc(p.record.Told, func(e entry) bool {
				return e.Kind == "submit" && (e.Execution == s.ID || e.Named == s.ID)
			})
		})
	}, ""},
	{"submission that was rolled back and is there", "G3", func(p *planting) bool {
		i := slices.IndexFunc(p.record.Told, func(e entry) bool { return e.Kind == "rolled back" })
		if i >= 0 {
			p.record.Told[i].Execution = p.stories[0].ID
		}
		return i >= 0
	}, onPostgres},
	{"output of another script", "G3", func(p *planting) bool {
		return p.tale(func(s *story) bool {
			return s.Script != nil && succeeded(&s.Execution) && len(s.Execution.Output) > 2
		},
			func(s *story) { s.Execution.Output = json.RawMessage(`["did nothing"]`) })
	}, ""},
	{"claim without the last checkpoint", "G4", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "claim" && len(e.Had) > 0
		}, func(e *entry) { e.Had = e.Had[1:] })
	}, ""},
	{"parent informed in another commit", "G4", func(p *planting) bool {
		return p.event(func(_ *story, ev *belay.Event) bool {
			return ev.Kind == "child"
		}, func(ev *belay.Event) { ev.At = ev.At.Add(time.Microsecond) })
	}, ""},
	{"parent never informed", "G4", func(p *planting) bool {
		return p.event(func(_ *story, ev *belay.Event) bool {
			return ev.Kind == "child"
		}, func(ev *belay.Event) { ev.Text = "" })
	}, ""},
	{"saved step carried out again", "G4", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			s := p.byID[e.Execution]
			return e.Kind == "effect" && e.Token < s.Execution.Token && s.Find("step", func(ev *belay.Event) bool {
				return ev.Token == e.Token
			}) != nil && s.Runs[len(s.Runs)-1].Generation == 1
		}, func(e *entry) {
			s := p.byID[e.Execution]
			saved := s.Find("step", func(ev *belay.Event) bool { return ev.Token == e.Token })
			last := s.Runs[len(s.Runs)-1]
			e.Name, e.Token, e.At = s.ID.String()+"/"+saved.Name, last.Token, last.At
		})
	}, ""},
	{"execution that never ends", "G5", func(p *planting) bool {
		return p.tale(func(s *story) bool {
			return s.Execution.State.Terminal()
		}, func(s *story) { s.Execution.State = belay.Waiting })
	}, ""},
	{"run under a session that is over", "G5", func(p *planting) bool {
		return p.event(func(_ *story, ev *belay.Event) bool {
			return ev.Kind == "lost"
		}, func(ev *belay.Event) { ev.At = ev.At.Add(time.Hour) })
	}, ""},
	{"waiting without a reason", "G5", func(p *planting) bool {
		for i := range p.record.Looks {
			for k := range p.record.Looks[i].Open {
				if x := &p.record.Looks[i].Open[k]; x.State == belay.Waiting {
					x.Reason = nil
					return true
				}
			}
		}
		return false
	}, ""},
}
