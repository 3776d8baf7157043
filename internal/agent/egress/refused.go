package egress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// mostRefusals bounds how many targets are told apart.
const mostRefusals = 200

// Refusal is a target that the job asked for in vain.
type Refusal struct {
	// Target is HOST:PORT, or what was sent in its place, in quotes; ASCII.
	Target string
	// Reason says why, naming the setting.
	Reason string
	// Count is how often.
	Count int
}

// others stands for the targets beyond mostRefusals.
const others = "others"

type refusals struct {
	mu  sync.Mutex
	all map[string]*Refusal
}

// count notes a refusal, and reports whether it is the first of its target.
func (r *refusals) count(target, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*Refusal{}
	}
	if r.all[target] == nil && len(r.all) >= mostRefusals {
		target, reason = others, "more targets than are told apart were refused"
	}
	if have := r.all[target]; have != nil {
		have.Count++
		return false
	}
	r.all[target] = &Refusal{Target: target, Reason: reason, Count: 1}
	return true
}

// Refused lists what was refused so far, by target. Beyond the first 200 targets all
// others are counted as one.
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

// The bounds of what is told of refusals.
const (
	mostTold = 10
	longest  = 300
)

// String says what was refused, in one line of ASCII.
func (r Refusal) String() string {
	times := ""
	if r.Count > 1 {
		times = fmt.Sprintf(", %d times", r.Count)
	}
	line := fmt.Sprintf("agent.egress refused %s%s: %s", r.Target, times, r.Reason)
	if len(line) > longest {
		line = line[:longest] + "..."
	}
	return line
}

// Told says in a few lines what was refused, the most frequent first.
func (s *Server) Told() (lines []string) {
	all := s.Refused()
	slices.SortStableFunc(all, func(a, b Refusal) int { return cmp.Compare(b.Count, a.Count) })
	rest := 0
	for i, r := range all {
		if i < mostTold {
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
