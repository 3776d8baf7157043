package machine

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// sessionSituations are the situations of a worker's session. The worker was assigned one execution
// by name and has not accepted it. The situations named outside are situations of an external
// owner's session that owns an execution.
var sessionSituations = []struct {
	name string
	set  func(*stage, belay.WorkerID)
}{
	{"missing", nil},
	{"open", func(*stage, belay.WorkerID) {}},
	{"open/overdue", func(s *stage, _ belay.WorkerID) { s.pass(time.Minute) }},
	{"cordoned", func(s *stage, id belay.WorkerID) { s.do(&Cordon{belay.Cordon{Worker: id}}) }},
	{"cordoned/overdue", func(s *stage, id belay.WorkerID) {
		s.do(&Cordon{belay.Cordon{Worker: id}})
		s.pass(time.Minute)
	}},
	{"cordoned/unhealthy", func(s *stage, id belay.WorkerID) {
		s.do(&Cordon{belay.Cordon{Worker: id}})
		s.do(&Probe{Worker: id, Error: "refused"})
	}},
	{"unhealthy", func(s *stage, id belay.WorkerID) { s.do(&Probe{Worker: id, Error: "refused"}) }},
	{"unhealthy/overdue", func(s *stage, id belay.WorkerID) {
		s.do(&Probe{Worker: id, Error: "refused"})
		s.pass(time.Minute)
	}},
	{"draining", func(s *stage, id belay.WorkerID) { s.do(&Drain{id}) }},
	{"draining/overdue", func(s *stage, id belay.WorkerID) {
		s.do(&Drain{id})
		s.pass(time.Minute)
	}},
	{"closed", func(s *stage, id belay.WorkerID) { s.do(&End{Worker: id}) }},
	{"drained", func(s *stage, id belay.WorkerID) {
		s.do(&Drain{id})
		s.do(&End{Worker: id})
	}},
	{"lost", func(s *stage, id belay.WorkerID) {
		s.pass(time.Minute)
		s.do(&Expire{id})
	}},
	{"outside", func(*stage, belay.WorkerID) {}},
	{"outside/overdue", func(s *stage, _ belay.WorkerID) { s.pass(time.Minute) }},
	{"outside/vacant", func(s *stage, id belay.WorkerID) {
		held := s.where(func(e *Execution) bool { return e.Worker == id })
		s.do(s.act(held[0].ID, belay.ActionSteal))
	}},
	{"outside/closed", func(s *stage, id belay.WorkerID) {
		held := s.where(func(e *Execution) bool { return e.Worker == id })
		s.do(s.settle(leaseOf(held[0]), belay.OutcomeReleased))
	}},
}

// sessionCommand is a command on a session, with the name of its block in testdata/sessions.txt.
type sessionCommand struct {
	name string
	make func(*stage, belay.WorkerID) Command
}

var sessionCommands = []sessionCommand{
	{"open", func(s *stage, id belay.WorkerID) Command {
		if x := s.workers[id]; x != nil && !x.Spec.External {
			return &Open{x.Spec}
		}
		return &Open{belay.WorkerSpec{ID: id, Name: "w", Workflows: []belay.Registration{{Workflow: "job"}}}}
	}},
	{"heartbeat", func(s *stage, id belay.WorkerID) Command { return s.beat(id) }},
	{"drain", func(_ *stage, id belay.WorkerID) Command { return &Drain{id} }},
	{"cordon", func(_ *stage, id belay.WorkerID) Command { return &Cordon{belay.Cordon{Worker: id}} }},
	{"open mailbox", func(_ *stage, id belay.WorkerID) Command { return &Mailbox{id, "a queue"} }},
	{"close mailbox", func(_ *stage, id belay.WorkerID) Command { return &Mailbox{Worker: id} }},
	{"uncordon", func(_ *stage, id belay.WorkerID) Command { return &Cordon{belay.Cordon{Worker: id, Off: true}} }},
	{"probe fails", func(_ *stage, id belay.WorkerID) Command { return &Probe{Worker: id, Error: "refused"} }},
	{"probe fails otherwise", func(_ *stage, id belay.WorkerID) Command { return &Probe{Worker: id, Error: "503"} }},
	{"probe succeeds", func(_ *stage, id belay.WorkerID) Command { return &Probe{Worker: id} }},
	{"end", func(_ *stage, id belay.WorkerID) Command { return &End{Worker: id} }},
	{"end by a proof of death", func(_ *stage, id belay.WorkerID) Command {
		return &End{Worker: id, Dead: "no such process"}
	}},
	{"expire", func(_ *stage, id belay.WorkerID) Command { return &Expire{id} }},
	{"claim", func(s *stage, id belay.WorkerID) Command {
		s.submit()
		return s.claims(id, 1)
	}},
	{"schedule to it", func(s *stage, id belay.WorkerID) Command {
		return &Schedule{Execution: s.submit(), Worker: id, Secret: belay.Secret{7}}
	}},
	{"accept its scheduled execution", func(s *stage, id belay.WorkerID) Command {
		e := s.where(func(e *Execution) bool { return e.Worker == id })
		if len(e) == 0 {
			return &Accept{id, s.submit(), 1, 1}
		}
		return &Accept{id, e[0].ID, e[0].Token, 1}
	}},
	{"vacate", func(_ *stage, id belay.WorkerID) Command { return &Vacate{id, "its execution was taken"} }},
	{"mark", func(*stage, belay.WorkerID) Command { return &Mark{} }},
}

// TestEverySessionCommandInEverySituation compares the rules with testdata/sessions.txt. A late
// heartbeat is the only refusal that changes a row: it ends its session.
func TestEverySessionCommandInEverySituation(t *testing.T) {
	rules := readRules(t, "testdata/sessions.txt")
	for _, d := range sessionCommands {
		t.Run(d.name, func(t *testing.T) {
			block := rules.block(t, d.name)
			for _, at := range sessionSituations {
				want, ok := block.find(at.name)
				if !ok {
					t.Errorf("the table has no line for %q and a session that is %s", d.name, at.name)
					continue
				}
				s := newStage(t)
				id := belay.WorkerID(s.id())
				if at.set != nil {
					if strings.HasPrefix(at.name, "outside") {
						s.do(s.lock(id, s.submit(external)))
					} else {
						id = s.worker("w", func(w *belay.WorkerSpec) { w.Health = ":9090" })
						s.do(&Schedule{Execution: s.submit(), Worker: id, Secret: belay.Secret{7}})
					}
					s.pass(time.Second)
					at.set(s, id)
				}
				c := d.make(s, id)
				before := s.workers[id]
				changes, replies := s.batch(c)
				if got := sessionOutcome(before, s.workers[id], changes, replies[0]); got != want {
					t.Errorf("%s\n got %s\nwant %s", at.name, got, want)
				}
			}
			block.unused(t)
		})
	}
	rules.done(t)
}

// sessionOutcome describes the effect of a command on a session in the notation of
// testdata/sessions.txt.
func sessionOutcome(before, after *Worker, c *Changes, r Reply) string {
	var out []string
	var e *belay.Error
	if errors.As(r.Err, &e) {
		out = append(out, strings.TrimSpace("! "+string(e.Code)+" "+string(e.Cause)))
	}
	if r.Replayed {
		out = append(out, "repeated")
	}
	if !same(before, after) {
		out = append(out, after.State.String())
		if before == nil || before.ExpiresAt != after.ExpiresAt {
			out = append(out, "renewed")
		}
		since, failure := after.Failing()
		if before != nil && before.condition().HealthError != failure && failure != "" {
			out = append(out, failure+" since "+strconv.Itoa(int(since-before.OpenedAt)/1e6))
		}
	}
	for _, run := range c.Runs {
		if run.StartedSeq != 0 {
			out = append(out, "started")
		} else {
			out = append(out, "scheduled")
		}
	}
	if n := len(r.Follow); n > 0 {
		out = append(out, "follow:"+strconv.Itoa(n))
	}
	if len(out) == 0 {
		return "="
	}
	return strings.Join(out, " ")
}
