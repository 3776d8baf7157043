package engine

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/belaydev/belay"
)

// A follower of labels gets from the window exactly the changes that it would select from all changes, and
// the same gaps, while old changes are dropped.
func TestTheWindowFindsChangesByLabel(t *testing.T) {
	t.Parallel()
	w, r := newStatusWindow(50), rand.New(rand.NewPCG(1, 2))
	names, seq := []string{"a", "b", "c"}, int64(0)
	some := func() map[string]string {
		m := make(map[string]string)
		for _, name := range names {
			if r.IntN(2) == 0 {
				m[name] = strconv.Itoa(r.IntN(3))
			}
		}
		return m
	}
	matched := 0
	for range 3000 {
		var all []belay.Status
		for range r.IntN(5) {
			seq++
			all = append(all, belay.Status{Seq: seq, Labels: some()})
		}
		w.add(all)
		var labels []label
		for name, value := range some() {
			labels = append(labels, label{name, value})
		}
		p := w.end()
		p.n = max(0, p.n-r.Int64N(60))
		var want, got []int64
		whole, end, _, gap := w.after(p, 1000)
		for _, e := range whole {
			if !slices.ContainsFunc(labels, func(l label) bool { return e.Labels[l.name] != l.value }) {
				want = append(want, e.Seq)
			}
		}
		for at := p; ; {
			part, next, _, cut := w.after(at, 7, labels...)
			if cut != gap {
				t.Fatalf("gap %q instead of %q", cut, gap)
			}
			for _, e := range part {
				if !slices.ContainsFunc(labels, func(l label) bool { return e.Labels[l.name] != l.value }) {
					got = append(got, e.Seq)
				}
			}
			if len(part) < 7 {
				if next != end {
					t.Fatalf("position %v instead of %v", next, end)
				}
				break
			}
			at = next
		}
		if !slices.Equal(got, want) {
			t.Fatalf("after %v with %v: %v instead of %v", p, labels, got, want)
		}
		matched += len(want)
	}
	if kept := len(w.labeled); matched < 1000 || kept == 0 || kept > 9 {
		t.Errorf("%d changes matched; the window has %d labels", matched, kept)
	}
	for l, list := range w.labeled {
		if list[0].n <= w.base {
			t.Errorf("a dropped change is left under %v", l)
		}
	}
}
