package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: the error of a probe is stored as one line of at most MaxName bytes that can be printed,
// together with the time of the first failure; the end of a session replaces both.
func TestTheErrorOfAProbe(t *testing.T) {
	s := newStage(t)
	id := s.worker("w", func(w *belay.WorkerSpec) { w.Health = ":9090" })
	began := s.now
	for in, want := range map[string]string{
		"refused":                       "refused",
		"17 refused":                    "17 refused",
		" a\r\n\tb ":                    "a b",
		"\x1b[31mred\x00\u202e\u2028":   "[31mred",
		"\x1b":                          "the probe failed",
		"\xff":                          "�",
		strings.Repeat("x", 2000):       strings.Repeat("x", belay.MaxName-len("…")) + "…",
		strings.Repeat("\u00e4 ", 2000): "",
	} {
		s.do(&Probe{Worker: id, Error: in})
		since, got := s.workers[id].Failing()
		if since != began || len(got) > belay.MaxName || want != "" && got != want {
			t.Errorf("%.50q is stored as %q since %s, want %q", in, got, since.Sub(began), want)
		}
		v := WorkerView(s.workers[id])
		if v.HealthError != got || v.EndReason != "" || v.State != belay.WorkerUnhealthy {
			t.Errorf("it is shown as %+v", v)
		}
		s.pass(time.Millisecond)
		s.do(s.beat(id))
	}
	s.pass(time.Minute)
	s.do(&Expire{id})
	v := WorkerView(s.workers[id])
	if v.HealthError != "" || !v.UnhealthySince.IsZero() || !strings.HasPrefix(v.EndReason, "no heartbeat") {
		t.Errorf("lost, it is shown as %+v", v)
	}
}

// Rule: a cordon and a failing health probe are recorded side by side. Each keeps its details when the
// other one begins, changes or ends; a drain ends both.
func TestACordonAndAFailingProbe(t *testing.T) {
	s := newStage(t)
	id := s.worker("w", ttl(time.Hour), func(w *belay.WorkerSpec) { w.Health = ":9090" })
	cordoned, failing := Time(0), Time(0)
	step := func(c Command, state belay.WorkerState, failure string) {
		t.Helper()
		s.do(c)
		x := s.workers[id]
		v := WorkerView(x)
		since, got := x.Failing()
		if x.State != state || got != failure || since != failing || v.UnhealthySince != since.Time() {
			t.Errorf("after %+v it is %s since %s because of %q", c, x.State, since.Time(), got)
		}
		want := belay.Cordoned{Since: cordoned.Time(), By: "ann", Reason: "why"}
		if c := v.Cordoned; (c != nil) != (cordoned != 0) || c != nil && *c != want {
			t.Errorf("its cordon is %+v, want %+v", c, want)
		}
		s.pass(time.Second)
	}
	on := &Cordon{belay.Cordon{Worker: id, Actor: "ann", Reason: "why"}}
	off := &Cordon{belay.Cordon{Worker: id, Off: true}}
	failing = s.now
	step(&Probe{id, "refused"}, belay.WorkerUnhealthy, "refused")
	cordoned = s.now
	step(on, belay.WorkerCordoned, "refused")
	step(on, belay.WorkerCordoned, "refused")
	step(&Probe{id, "503"}, belay.WorkerCordoned, "503")
	cordoned = 0
	step(off, belay.WorkerUnhealthy, "503")
	cordoned = s.now
	step(on, belay.WorkerCordoned, "503")
	failing = 0
	step(&Probe{Worker: id}, belay.WorkerCordoned, "")
	failing = s.now
	step(&Probe{id, "refused"}, belay.WorkerCordoned, "refused")
	failing, cordoned = 0, 0
	step(&Drain{id}, belay.WorkerDraining, "")
	step(&Probe{id, "refused"}, belay.WorkerDraining, "")
	if x := s.workers[id]; x.Why != "" {
		t.Errorf("draining, it says %q", x.Why)
	}
}

// Rule: an unhealthy session whose details cannot be read claims nothing. After a probe that
// succeeds the session may claim again.
func TestAnUnhealthySessionWithUnreadableDetails(t *testing.T) {
	for _, text := range []string{"{", `{"unhealthy_since": 7}`, "1700000000000000 refused"} {
		s := newStage(t)
		id := s.worker("w", func(w *belay.WorkerSpec) { w.Health = ":9090" })
		s.do(&Probe{id, "refused"})
		s.workers[id].Why = text
		if r := s.do(s.claims(id, 1)); !r.NoClaims {
			t.Errorf("with the details %q it claims", text)
		}
		if r := s.do(&Probe{Worker: id}); r.Worker != belay.WorkerOpen || s.workers[id].Why != "" {
			t.Errorf("with the details %q, the good probe made it %+v", text, s.workers[id])
		}
	}
}
