package promise

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Finding is the result of one checker for one history.
type Finding struct {
	History  *History
	Promise  string
	Looked   int
	Violated []string
}

// OK counts a check that found no violation.
func (f *Finding) OK() { f.Looked++ }

// Count counts an event that must happen at least once in a test; see History.Sometimes.
func (f *Finding) Count(what string) { f.History.count(what) }

// Violation records a broken promise, and the execution if s is not nil.
func (f *Finding) Violation(s *Story, format string, args ...any) {
	text := f.Promise + ": "
	if s != nil {
		text += f.name(s.ID) + ": "
	}
	f.Violated = append(f.Violated, text+fmt.Sprintf(format, args...))
}

func (f *Finding) name(id belay.ExecutionID) string {
	if f.History.Name != nil {
		return f.History.Name(id)
	}
	return id.String()
}

// eachEntry calls each with every entry of the given kind and ending.
func (f *Finding) eachEntry(kind string, end Ending, each func(*Entry)) {
	for i := range f.History.Told {
		if e := &f.History.Told[i]; e.Kind == kind && e.End == end {
			each(e)
		}
	}
}

// storyOf returns the story of an entry's execution. If the entry was acknowledged but its
// execution does not exist, storyOf records a violation.
func (f *Finding) storyOf(e *Entry) *Story {
	s := f.History.Story(e.Execution)
	if s == nil && e.End == OK {
		f.Violation(nil, "%s got an answer to %s of %s at %s, which does not exist", e.Who, e.Kind, e.Execution,
			e.To.Format(clock))
	}
	return s
}

// Missing lists the names whose count is zero.
func Missing(names []string, counted map[string]int) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return counted[name] > 0 })
}

// Sum returns the sum of all counts.
func Sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// List formats counts as text: all counts, or the counts of the given names.
func List(m map[string]int, names ...string) string {
	if names == nil {
		names = slices.Collect(maps.Keys(m))
	}
	var out []string
	for _, k := range slices.Sorted(slices.Values(names)) {
		out = append(out, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}

// Quantiles formats durations as text.
func Quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "(never)"
	}
	slices.Sort(all)
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100].Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", at(50), at(99), at(100), len(all))
}
