package egress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// mostRefusals bounds how many targets are counted separately.
const mostRefusals = 200

// Refusal is a target that the proxy refused.
type Refusal struct {
	// Target is HOST:PORT, or the invalid text of the request, quoted; ASCII.
	Target string
	// Reason is the reason, with the name of the setting.
	Reason string
	// Count is the number of refusals.
	Count int
}

// others stands for the targets beyond mostRefusals.
const others = "others"

type refusals struct {
	mu  sync.Mutex
	all map[string]*Refusal
}

// count counts a refusal, and reports whether it is the first of its target.
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

// Refused lists the refused targets. After the first 200 targets, all others are counted as one.
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

// The bounds of Summary: the number of lines, and the bytes of a line.
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

// Summary describes the refusals in a few lines, the most frequent first.
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
