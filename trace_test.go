package belay_test

import (
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: a trace from outside is taken in the form of W3C Trace Context, and otherwise ignored.
func TestTraceValid(t *testing.T) {
	const (
		id   = "4bf92f3577b34da6a3ce929d0e0e4736"
		span = "00f067aa0ba902b7"
		good = "00-" + id + "-" + span + "-01"
	)
	for _, c := range []struct{ parent, state, wantParent, wantState string }{
		{good, "", good, ""},
		{good, "vendor=1,a@b=x y", good, "vendor=1,a@b=x y"},
		{"cc-" + id + "-" + span + "-01-more", "", good, ""},
		{"00-" + id + "-" + span + "-ff", "", "00-" + id + "-" + span + "-03", ""},
		{good, strings.Repeat("a=b,", 33) + "a=b", good, ""},
		{good, "a=" + strings.Repeat("b", belay.MaxTracestate), good, ""},
		{good, "a=b\nX: y", good, ""},
		{good, "no", good, ""},
		{"", "a=b", "", ""},
		{good + "-more", "", "", ""},
		{"ff-" + id + "-" + span + "-01", "", "", ""},
		{"00-" + strings.ToUpper(id) + "-" + span + "-01", "", "", ""},
		{"00-" + strings.Repeat("0", 32) + "-" + span + "-01", "", "", ""},
		{"00-" + id + "-" + strings.Repeat("0", 16) + "-01", "", "", ""},
		{"00-" + id + "-" + span + "-0g", "", "", ""},
		{"00_" + id + "-" + span + "-01", "", "", ""},
		{"cc-" + id + "-" + span + "-01" + strings.Repeat("-x", 5000), "", "", ""},
		{good[:54], "", "", ""},
		{strings.Repeat("\x00", 55), "", "", ""},
	} {
		want := belay.Trace{Parent: c.wantParent, State: c.wantState}
		if got := (belay.Trace{Parent: c.parent, State: c.state}).Valid(); got != want {
			t.Errorf("%.80q with %.80q is %+v, not %+v", c.parent, c.state, got, want)
		}
	}
}

// Rule: a submission without a trace costs nothing, because most have none.
func TestNoTraceTakesNoMemory(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _ = belay.Trace{}.Valid() }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
