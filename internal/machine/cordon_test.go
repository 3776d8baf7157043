package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: the session of a cordoned worker records the actor and the reason of its newest cordon, and
// the time of its first. So a second cordon replaces the actor and the reason and keeps the time.
// Heartbeats and claims change none of the three.
func TestACordonSaysByWhomAndWhy(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	cordoned := func() *belay.Cordoned { return WorkerView(s.workers[w]).Cordoned }
	if c := cordoned(); c != nil {
		t.Fatalf("an open session is cordoned: %+v", c)
	}
	since := s.now
	for _, c := range []belay.Cordon{
		{Worker: w, Actor: "ann", Reason: "its disk is failing"}, {Worker: w, Actor: "bob", Reason: "<b>&\"'`"}, {Worker: w},
	} {
		s.do(&Cordon{c})
		s.pass(time.Second)
		s.do(s.beat(w))
		s.do(s.claims(w, 1))
		if got := cordoned(); got == nil || *got != (belay.Cordoned{Since: since.Time(), By: c.Actor, Reason: c.Reason}) {
			t.Errorf("cordoned by %+v, it says %+v", c, got)
		}
	}
	s.do(&Cordon{belay.Cordon{Worker: w, Off: true}})
	if c := cordoned(); c != nil || s.workers[w].Why != "" {
		t.Errorf("it is still cordoned: %+v, %q", c, s.workers[w].Why)
	}
}

// Rule: the end or the drain of a cordoned session replaces the reason of its cordon.
func TestTheEndOfACordonedSessionHasItsOwnReason(t *testing.T) {
	for name, end := range map[string]func(*stage, belay.WorkerID){
		"closed":   func(s *stage, w belay.WorkerID) { s.do(&End{Worker: w}) },
		"lost":     func(s *stage, w belay.WorkerID) { s.pass(time.Hour); s.do(&Expire{w}) },
		"draining": func(s *stage, w belay.WorkerID) { s.do(&Drain{w}) },
	} {
		s := newStage(t)
		w := s.worker("w")
		s.do(&Cordon{belay.Cordon{Worker: w, Actor: "ann", Reason: "secret plans"}})
		end(s, w)
		v := WorkerView(s.workers[w])
		if v.State.String() != name || v.Cordoned != nil || strings.Contains(s.workers[w].Why, "secret plans") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Rule: a cordon with an actor or a reason that is too long, is not UTF-8 or has control characters is
// refused, and nothing changes.
func TestACordonWithABadReasonIsRefused(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	for _, bad := range []string{
		strings.Repeat("r", belay.MaxName+1), "a\nb", "\x1b[2J", "\x00", "\u0085", "\xff", strings.Repeat("€", 67),
	} {
		s.refused(&Cordon{belay.Cordon{Worker: w, Reason: bad}}, belay.CodeInvalid)
		s.refused(&Cordon{belay.Cordon{Worker: w, Actor: bad}}, belay.CodeInvalid)
		s.refused(&Cordon{belay.Cordon{Worker: w, Actor: bad, Off: true}}, belay.CodeInvalid)
		if x := s.workers[w]; x.State != belay.WorkerOpen || x.Why != "" {
			t.Fatalf("%q changed the session: %+v", bad, *x)
		}
	}
}

// Rule: a cordoned session claims nothing, even if the details of its cordon cannot be read.
func TestACordonWithUnreadableDetailsHolds(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	s.do(&Cordon{belay.Cordon{Worker: w, Reason: "why"}})
	for _, text := range []string{"{", `{"cordoned": {"since": 7}}`, `{"since": "2026-01-02T03:04:05Z"}`, "null"} {
		s.workers[w].Why = text
		if r := s.do(s.claims(w, 1)); !r.NoClaims {
			t.Errorf("with the details %q it claims", text)
		}
		if c := WorkerView(s.workers[w]).Cordoned; c == nil || c.Reason != "" {
			t.Errorf("the details %q are shown as %+v", text, c)
		}
	}
}
