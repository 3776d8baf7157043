package main

import (
	"strings"
	"testing"

	"github.com/belaydev/belay/bench/trial"
)

// Rule: a verdict compares the median of Belay with the best median of the other contender's
// variants. A variant that failed is ignored.
func TestVerdicts(t *testing.T) {
	rates := func(v ...float64) (s []trial.Sample) {
		for _, r := range v {
			s = append(s, trial.Sample{Rate: r})
		}
		return s
	}
	failed := []trial.Sample{{Rate: 1e9, Error: "the store has 1 runs, want 2"}}
	for name, c := range map[string]struct {
		mine, tuned, plain []trial.Sample
		measured           float64
		verdict            string
	}{
		"the aim is reached":       {rates(10, 500, 200), rates(100), rates(50), 2, reached},
		"the floor is reached":     {rates(130), rates(100), rates(50), 1.3, accepted},
		"the defaults were faster": {rates(130), rates(100), rates(130), 1, below},
		"one of them failed":       {rates(260), failed, rates(130), 2, reached},
		"all of them failed":       {rates(260), failed, failed, 0, unknown},
		"the work was not done":    {failed, rates(100), rates(100), 0, unknown},
		"nothing was measured":     {nil, rates(100), rates(100), 0, unknown},
	} {
		r := &report{Samples: map[string][]trial.Sample{
			"drain/postgres/belay/default": c.mine, "drain/postgres/river/tuned": c.tuned,
			"drain/postgres/river/default": c.plain,
		}}
		r.judge()
		if got := r.Claims[0]; got.Verdict != c.verdict || got.Measured != c.measured {
			t.Errorf("%s: %s at %v, want %s at %v", name, got.Verdict, got.Measured, c.verdict, c.measured)
		}
	}
}

// Rule: if a count must be zero, a count of one gets the verdict that it is below its floor (the
// worst accepted value). A claim without an aim gets the verdict "compared", whatever the result
// is.
func TestZeroCountsAndClaimsWithoutAnAim(t *testing.T) {
	none, open := claim{Bound: true, Floor: .5}, claim{Open: true}
	for _, c := range []struct {
		claim    claim
		measured float64
		verdict  string
	}{{none, 0, reached}, {none, 1, below}, {open, 0, compared}, {open, 7, compared}} {
		c.claim.Measured = c.measured
		if got := c.claim.verdict(); got != c.verdict {
			t.Errorf("%+v: %s, want %s", c.claim, got, c.verdict)
		}
	}
}

// Rule: the report prints the median of a trial's rounds with the smallest and the largest value.
// It prints rates below ten with three decimals.
func TestSlowRatesHaveMoreDigits(t *testing.T) {
	r := &report{Samples: map[string][]trial.Sample{"jobs": {{Rate: .375}, {Rate: .125}, {Rate: .25}}}}
	if got := r.figure("jobs"); got != "0.250/s\t0.125 to 0.375" {
		t.Errorf("%q", got)
	}
}

// Rule: every claim names trials of the plan; a claim with another trial could never get a verdict.
func TestClaimsNamePlannedTrials(t *testing.T) {
	planned := make(map[string]bool)
	for _, p := range plan(options{}) {
		if planned[p.name()] {
			t.Errorf("%s is planned twice", p.name())
		}
		planned[p.name()] = true
	}
	for _, c := range claims() {
		for _, name := range append(c.Others, c.Mine) {
			if !planned[name] {
				t.Errorf("%s: no trial measures %s", c.Name, name)
			}
		}
	}
}

// Rule: a run of bench fails only if a value is below its floor (the worst accepted value), and a
// quick run never fails.
func TestARunFailsBelowAFloor(t *testing.T) {
	r := &report{Claims: []claim{{Name: "a", Verdict: accepted}, {Name: "b", Verdict: unknown}}}
	if err := r.failed(); err != nil {
		t.Error(err)
	}
	r.Claims = append(r.Claims, claim{Name: "c", Verdict: below})
	if r.failed() == nil {
		t.Error("a floor was not reached, and no error says so")
	}
	if r.Quick = true; r.failed() != nil {
		t.Error("a quick run failed because of a floor")
	}
}

// Rule: with -before, the other revision repeats a trial right after this revision's trial. It
// repeats only trials that it is able to carry out.
func TestTrialsOfTwoRevisionsAreNextToEachOther(t *testing.T) {
	o := options{stores: "postgres,sqlite,repo", before: "/a/program", only: "drain,gates@5,jobs"}
	var names []string
	for _, p := range new(bed).trials(o) {
		if p.Contender == belayIn.Contender {
			names = append(names, p.name())
		}
	}
	want := "drain/postgres/belay/http drain/postgres/belay/default drain/postgres/belay/before " +
		"drain/postgres/belay/rabbitmq drain/sqlite/belay/default drain/sqlite/belay/before drain/sqlite/belay/http " +
		"drain/sqlite/belay/rabbitmq gates@5/postgres/belay/default gates@5/postgres/belay/http " +
		"gates@5/postgres/belay/three gates@5/sqlite/belay/default jobs/repo/belay/default jobs/repo/belay/single"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("planned:\n%s\nwant:\n%s", got, want)
	}
}

// Rule: the report compares two revisions round by round. A ratio above 1 means that this revision
// is faster, or that it needs less processor time.
func TestRevisionsAreComparedByRound(t *testing.T) {
	r := &report{Samples: map[string][]trial.Sample{
		"drain/sqlite/belay/default": {{Rate: 300, CPU: 5}, {Rate: 50, CPU: 8, Database: 2}, {Rate: 110, CPU: 10}},
		"drain/sqlite/belay/before":  {{Rate: 100, CPU: 10}, {Rate: 100, CPU: 5}, {Rate: 100, CPU: 10}},
	}}
	var b strings.Builder
	r.revisions(&b)
	if want := "0.500  1.100  3.000  0.500  1.000  2.000"; !strings.Contains(b.String(), want) {
		t.Errorf("want %q in:\n%s", want, b.String())
	}
	b.Reset()
	if (&report{}).revisions(&b); b.Len() > 0 {
		t.Errorf("nothing was compared:\n%s", b.String())
	}
}
