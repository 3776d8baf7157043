package chaos

import (
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// lateMutants are the planted bugs for the promises about time, ends and watchers.
var lateMutants = []mutant{
	{"owner declared lost before its deadline", "G6", func(p *planting) bool {
		return p.session(expired, func(w *belay.Worker) { w.EndedAt = w.ExpiresAt.Add(-time.Millisecond) })
	}, ""},
	{"owner declared lost late", "G6", func(p *planting) bool {
		return p.session(expired, func(w *belay.Worker) { w.EndedAt = w.ExpiresAt.Add(time.Hour) })
	}, ""},
	{"less time than was promised", "G6", func(p *planting) bool {
		return p.session(expired, func(w *belay.Worker) {
			w.ExpiresAt = w.HeartbeatAt.Add(w.TTL.D() - time.Millisecond)
		})
	}, ""},
	{"more time than a recovery gave", "G6", func(p *planting) bool {
		return p.session(expired, func(w *belay.Worker) {
			w.ExpiresAt, w.EndedAt = w.ExpiresAt.Add(time.Hour), w.EndedAt.Add(time.Hour)
		})
	}, ""},
	{"acknowledged heartbeat that does not count", "G6", func(p *planting) bool {
		return p.session(func(w *belay.Worker) bool {
			return len(p.beats[w.ID]) > 0
		}, func(w *belay.Worker) { w.HeartbeatAt = w.HeartbeatAt.Add(-time.Minute) })
	}, ""},
	{"death of a live worker", "G6", func(p *planting) bool {
		return p.session(func(w *belay.Worker) bool {
			return strings.Contains(w.EndReason, "is gone")
		}, func(w *belay.Worker) {
			p.record.Deaths = slices.DeleteFunc(p.record.Deaths, func(d death) bool { return d.PID == w.Process.PID })
			p.record.Told = slices.DeleteFunc(p.record.Told, func(e entry) bool {
				return e.Kind == "poison" && int(e.Number) == w.Process.PID
			})
		})
	}, ""},
	{"success after a cancel", "G7", func(p *planting) bool {
		return p.tale(func(s *story) bool {
			return s.Execution.State == belay.Cancelled
		}, func(s *story) { s.Execution.State = belay.Succeeded })
	}, ""},
	{"two ends", "G7", func(p *planting) bool {
		return p.event(func(s *story, ev *belay.Event) bool {
			return ev.Kind == "suspended" && len(s.Runs) > 1
		}, func(ev *belay.Event) { ev.Final = true })
	}, ""},
	{"claim before the backoff", "G8", func(p *planting) bool {
		return p.tale(func(s *story) bool { return retried(s) != nil }, func(s *story) {
			a := retried(s)
			next := s.At(a.End.Seq + 1)
			next.At = a.End.At.Add(time.Millisecond)
		})
	}, ""},
	{"attempt not charged", "G8", func(p *planting) bool {
		return p.event(func(_ *story, ev *belay.Event) bool {
			return ev.Kind == "started" && ev.Attempt > 1
		}, func(ev *belay.Event) { ev.Attempt-- })
	}, ""},
	{"sleep that ends early", "G8", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "slept" && e.Least > 10*skew
		}, func(e *entry) { e.At = e.At.Add(-time.Minute) })
	}, ""},
	{"key with two executions", "G9", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "submit" && e.End == ok && e.Key != "" && e.Execution != e.Named
		},
			func(e *entry) { e.Named = p.stories[0].ID })
	}, ""},
	{"another body under a known key", "G9", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "submit" && e.Code == belay.CodeIdempotencyMismatch
		}, func(e *entry) {
			i := slices.IndexFunc(p.record.Told, func(x entry) bool { return x.Key == e.Key && x.End == ok })
			if i >= 0 {
				e.End, e.Code, e.Named = ok, "", p.record.Told[i].Named
			}
		})
	}, ""},
	{"dead letter dropped", "G10", func(p *planting) bool {
		if len(p.record.Letters) == 0 {
			return false
		}
		p.record.Letters = p.record.Letters[1:]
		return true
	}, ""},
	{"dead letter in another commit", "G10", func(p *planting) bool {
		if len(p.record.Letters) == 0 {
			return false
		}
		p.record.Letters[0].At = p.record.Letters[0].At.Add(time.Microsecond)
		return true
	}, ""},
	{"execution that is not counted", "G10", func(p *planting) bool {
		p.record.States[belay.Succeeded]--
		return true
	}, ""},
	{"claim of a worker that has ended", "G11", func(p *planting) bool {
		return p.session(func(w *belay.Worker) bool {
			return w.State.Ended() && w.State != belay.WorkerLost &&
				slices.ContainsFunc(p.stories, func(s *story) bool {
					return slices.ContainsFunc(s.Runs, func(a *attempt) bool { return a.Worker == w.ID })
				})
		}, func(w *belay.Worker) { w.EndedAt = w.OpenedAt })
	}, ""},
	{"row dropped", "G15", func(p *planting) bool {
		return p.tale(func(s *story) bool {
			return len(s.Events) > 2
		}, func(s *story) { s.Events = slices.Delete(s.Events, 1, 2) })
	}, ""},
	{"event not shown to a watcher", "G15", func(p *planting) bool {
		if len(p.record.Seen) == 0 {
			return false
		}
		p.record.Seen = p.record.Seen[1:]
		return true
	}, ""},
	{"watch that ends before the end", "G15", func(p *planting) bool {
		n := len(p.record.Seen)
		for n > 0 && p.byID[p.record.Seen[n-1].Execution] == nil {
			n--
		}
		if n == 0 {
			return false
		}
		p.record.Seen = slices.Delete(p.record.Seen, n-1, n)
		return true
	}, ""},
	{"neighbour of poison failed", "poison", func(p *planting) bool {
		return p.event(func(s *story, ev *belay.Event) bool {
			return ev.Kind == "lost" && !ev.Final && s.Script != nil && !isPoison(s) && !cancelledBy(s, ev.Seq)
		}, func(ev *belay.Event) { ev.Final = true })
	}, ""},
	{"poison that succeeds", "poison", func(p *planting) bool {
		return p.tale(isPoison, func(s *story) { s.Execution.State = belay.Succeeded })
	}, ""},
	{"due execution that waits for a poll", "pickup", func(p *planting) bool {
		return p.tale(func(s *story) bool {
			due, claimed, first := pickedUp(s)
			return first && p.idle(s, due.Add(-pickedUpBy-time.Millisecond), claimed)
		}, func(s *story) { s.Events[0].At = s.Events[0].At.Add(-pickedUpBy - time.Millisecond) })
	}, ""},
	{"lost more often than allowed", "G8", func(p *planting) bool {
		return p.tale(func(s *story) bool { return isPoison(s) && s.Execution.Policy != nil && len(s.Runs) > 2 },
			func(s *story) { s.Execution.Policy.MaxLosses = 1 })
	}, ""},
	{"command killed and begun again", "agents", func(p *planting) bool {
		return p.tree(func(_ *agentTale, t *ticks) { t.PIDs = append(t.PIDs, 1) })
	}, ""},
	{"command that skipped a number", "agents", func(p *planting) bool {
		return p.tree(func(_ *agentTale, t *ticks) { t.Torn = "3 follows 1" })
	}, ""},
	{"process left behind", "agents", func(p *planting) bool {
		return p.tree(func(a *agentTale, _ *ticks) { a.Alive = append(a.Alive, 1) })
	}, ""},
	{"bad input accepted", "inputs", func(p *planting) bool {
		p.record.Passed = append(p.record.Passed, "no workflow: 201")
		return true
	}, ""},
}

func expired(w *belay.Worker) bool {
	return w.State == belay.WorkerLost && !strings.Contains(w.EndReason, "is gone")
}

// retried returns a run that failed, if the next event of its execution is a claim.
func retried(s *story) *attempt {
	for i, a := range s.Runs {
		if a.End != nil && a.End.Kind == "failed" && i+1 < len(s.Runs) && s.Runs[i+1].Seq == a.End.Seq+1 {
			return a
		}
	}
	return nil
}
