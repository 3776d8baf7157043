package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: a gate says which operator has set its limit or its rate, when and why. If the same value
// is set again, the gate keeps the time. If another value is set, it has a new time. If the value
// is removed, the gate shows no operator any more.
func TestAGateSaysWhoSetIt(t *testing.T) {
	s := newStage(t)
	view := func() belay.GateInfo {
		v, err := GateView("queue:default", s.objects[GateRef("queue:default")], nil, s.now)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	by := func(most int, who, why string) func(*belay.GateChange) {
		return func(c *belay.GateChange) { c.Max, c.Per, c.Actor, c.Reason = most, within(time.Minute), who, why }
	}
	for _, kind := range []struct {
		set, unset belay.GateAction
		said       func() (time.Time, string, string)
	}{
		{belay.GateSetLimit, belay.GateUnsetLimit, func() (time.Time, string, string) {
			l := view().Limit
			return l.Since, l.By, l.Reason
		}},
		{belay.GateSetRate, belay.GateUnsetRate, func() (time.Time, string, string) {
			r := view().Rate
			return r.Since, r.By, r.Reason
		}},
	} {
		first := s.now
		for i, c := range []struct {
			most     int
			who, why string
			since    Time
		}{{5, "ann", "slow", first}, {5, "bob", "slower", first}, {6, "bob", "", first.Add(2 * time.Second)}} {
			s.do(s.set("queue:default", kind.set, by(c.most, c.who, c.why)))
			if since, who, why := kind.said(); !since.Equal(c.since.Time()) || who != c.who || why != c.why {
				t.Errorf("%s %d: set %s by %q because of %q", kind.set, i, since, who, why)
			}
			s.pass(time.Second)
		}
		s.do(s.set("queue:default", kind.unset))
	}
	if g, err := ReadGate(s.objects[GateRef("queue:default")]); err != nil || g.Limit != nil || g.Rate != nil {
		t.Errorf("it remains %+v, %v", g, err)
	}
}
