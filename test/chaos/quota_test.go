package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// quota is how often a fault must have happened: once in a short run, and about as often as planned
// in a long run. A fault counts when it was carried out, not when it was planned.
type quota struct {
	fault string
	every time.Duration
}

func (q quota) in(length time.Duration) int { return max(1, int(length*4/5/q.every)) }

// quotas are the quotas of each store. The plan deals out the kinds of faults in turn, so the plan
// of every seed has every kind.
var quotas = map[string][]quota{
	onSQLite: slices.Concat(ofWorkers, []quota{
		{"server killed", 6 * time.Second},
		{"server stopped and continued", 20 * time.Second},
		{"clients' line cut", 24 * time.Second},
		{"clients' line hold replies", 24 * time.Second},
	}),
	onPostgres: slices.Concat(ofWorkers, []quota{
		{"server killed", 6 * time.Second},
		{"server stopped and continued", 20 * time.Second},
		{"database killed", time.Hour},
		{"database restarted", time.Hour},
		{"backends terminated", 30 * time.Second},
		{"several servers killed at once", 30 * time.Second},
		{"table locked", 30 * time.Second},
		{"pooler killed", 30 * time.Second},
		{"database's disk full", 60 * time.Second},
		{"database read-only", 45 * time.Second},
		{"old snapshot held", 60 * time.Second},
		{"keys held by an open transaction", 30 * time.Second},
	}),
}

var ofWorkers = []quota{
	{"worker killed", 3 * time.Second},
	{"worker stopped and continued", 20 * time.Second},
	{"worker ended in order", 20 * time.Second},
	{"worker killed by poison", 30 * time.Second},
	{"servers killed while they deleted", time.Hour},
}

// unmet returns the faults that did not happen often enough.
func (r *record) unmet() (out []string) {
	for _, q := range quotas[r.Store] {
		if slices.Contains(r.Cannot, q.fault) {
			continue
		}
		if n, least := r.Faults[q.fault], q.in(r.For); n < least {
			out = append(out, fmt.Sprintf("%s (%d times of %d)", q.fault, n, least))
		}
	}
	return out
}

// Rule: a run in which a planned fault did not happen is inconclusive, whatever the checkers found.
func TestARunWithoutAPlannedFaultIsInconclusive(t *testing.T) {
	for store, all := range quotas {
		r := &record{Store: store, For: 10 * time.Minute, Faults: make(map[string]int)}
		for _, q := range all {
			r.Faults[q.fault] = q.in(r.For)
		}
		if got := r.unmet(); len(got) > 0 {
			t.Errorf("%s: everything happened, and %q is missed", store, got)
		}
		for _, q := range all {
			one := *r
			one.Faults = maps.Clone(r.Faults)
			one.Faults[q.fault]--
			v := &verdict{book: newBook(&one)}
			if !slices.ContainsFunc(v.missing(), func(s string) bool { return strings.HasPrefix(s, q.fault+" (") }) {
				t.Errorf("%s: %q happened too seldom, and is not missed", store, q.fault)
			}
		}
	}
}
