package egress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// mostRefusals is the maximum number of targets that are counted separately.
const mostRefusals = 200

// Refusal is a target that the proxy refused.
type Refusal struct {
	// Target is HOST:PORT, or the quoted text of an invalid target; always ASCII.
	Target string
	// Reason says why the target was refused.
	Reason string
	// Count is the number of refusals of this target.
	Count int
}

// others is the entry in which all targets after the first mostRefusals targets are counted
// together.
const others = "others"

type refusals struct {
	mu  sync.Mutex
	all map[string]*Refusal
}

// count counts a refusal, and reports whether it is the first refusal of its target.
func (r *refusals) count(target, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*Refusal{}
	}
	if r.all[target] == nil && len(r.all) >= mostRefusals {
		target, reason = others, "targets after the first 200, counted together"
	}
	if have := r.all[target]; have != nil {
		have.Count++
		return false
	}
	r.all[target] = &Refusal{Target: target, Reason: reason, Count: 1}
	return true
}

// Refused lists the refused targets. After the first 200 targets, all further targets share one
// entry.
func (s *Server) Refused() []Refusal {
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	list := make([]Refusal, 0, len(s.refused.all))
	for _, r := range s.refused.all {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b Refusal) int { return strings.Compare(a.Target, b.Target) })
	return list
}

// The maximum number of lines of Summary, and the maximum length of a line in bytes.
const (
	maxSummary = 10
	maxLine    = 300
)

// String describes the refusal in one line of ASCII.
func (r Refusal) String() string {
	times := ""
	if r.Count > 1 {
		times = fmt.Sprintf(", %d times", r.Count)
	}
	line := fmt.Sprintf("agent.egress refused %s%s: %s", r.Target, times, r.Reason)
	if len(line) > maxLine {
		line = line[:maxLine] + "..."
	}
	return line
}

// Summary describes the refusals in at most eleven lines. The targets that were refused most often
// come first.
func (s *Server) Summary() (lines []string) {
	all := s.Refused()
	slices.SortStableFunc(all, func(a, b Refusal) int { return cmp.Compare(b.Count, a.Count) })
	rest := 0
	for i, r := range all {
		if i < maxSummary {
			lines = append(lines, r.String())
			continue
		}
		rest += r.Count
	}
	if rest > 0 {
		lines = append(lines, fmt.Sprintf("agent.egress refused other targets, %d times", rest))
	}
	return lines
}
