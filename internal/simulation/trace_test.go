package simulation

import (
	"fmt"
	"hash"
	"hash/fnv"
	"strings"
	"sync"
	"time"
)

// trace is the list of events in their order. Its hash is the same in every run of a seed. The
// trace keeps its lines only if the test will print them.
type trace struct {
	mu      sync.Mutex
	hash    hash.Hash64
	verbose bool
	lines   []string
}

func newTrace(verbose bool) *trace { return &trace{hash: fnv.New64a(), verbose: verbose} }

func (t *trace) add(at time.Duration, what ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b [8]byte
	for i := range b {
		b[i] = byte(at >> (8 * i))
	}
	_, _ = t.hash.Write(b[:])
	for _, s := range what {
		_, _ = t.hash.Write([]byte(s))
	}
	if t.verbose {
		t.lines = append(t.lines, fmt.Sprintf("%12s  %s", at, strings.Join(what, " ")))
	}
}

// firstDifference shows where two traces begin to differ.
func firstDifference(a, b []string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	part := func(lines []string) string {
		return strings.Join(lines[min(n, len(lines)):min(n+4, len(lines))], "\n\t")
	}
	return fmt.Sprintf("after\n\t%s\none went on with\n\t%s\nthe other with\n\t%s", strings.Join(a[max(0, n-25):n],
		"\n\t"), part(a), part(b))
}

// traceCommit adds the rows that a commit wrote to the trace.
func (w *world) traceCommit(c *commit) {
	var b strings.Builder
	for _, e := range c.changes.Executions {
		fmt.Fprintf(&b, " %s:%s/%d/%d", short(e.ID), e.State, e.Seq, e.Token&0xffff)
	}
	for _, x := range c.changes.Workers {
		fmt.Fprintf(&b, " %s:%s", x.Spec.Name, x.State)
	}
	for _, p := range c.changes.Places {
		fmt.Fprintf(&b, " %s@%s:%t/%t", short(p.Execution), p.Gate, p.Held, p.Gone)
	}
	for _, o := range c.changes.Objects {
		fmt.Fprintf(&b, " %s=%s next %d", o.Name, o.Body, o.NextAt)
	}
	if c.changes.Grace != 0 {
		fmt.Fprintf(&b, " grace %s", c.changes.Grace)
	}
	w.trace.add(w.gate.now(), "commit", c.node, fmt.Sprint(c.at), b.String())
}
