package promise

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Finding is what one checker found in one history.
type Finding struct {
	History  *History
	Promise  string
	Looked   int
	Violated []string
}

// OK counts what was looked at and found in order.
func (f *Finding) OK() { f.Looked++ }

// Count counts something that must happen at least sometimes.
func (f *Finding) Count(what string) { f.History.count(what) }

// Violation notes a broken promise, of an execution if there is one to name.
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

// told are the entries of a kind that ended in a way.
func (f *Finding) told(kind string, end Ending, each func(*Entry)) {
	for i := range f.History.Told {
		if e := &f.History.Told[i]; e.Kind == kind && e.End == end {
			each(e)
		}
	}
}

// storyOf is the story that an entry is about. An acknowledged entry about an execution that is not
// there is a broken promise.
func (f *Finding) storyOf(e *Entry) *Story {
	s := f.History.Story(e.Execution)
	if s == nil && e.End == OK {
		f.Violation(nil, "%s was told %s of %s at %s, which is not there", e.Who, e.Kind, e.Execution,
			e.To.Format(clock))
	}
	return s
}

// Missing are the names that were never counted.
func Missing(names []string, counted map[string]int) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return counted[name] > 0 })
}

// Sum is the sum of all counts.
func Sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// List is counts as a person reads them: all, or those of some names.
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

// Quantiles is durations as a person reads them.
func Quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "(never)"
	}
	slices.Sort(all)
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100].Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", at(50), at(99), at(100), len(all))
}
