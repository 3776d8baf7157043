package simulation

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// g15: watchers miss nothing. The events of an execution are ordered, unique and
// gapless, as they were written, as the store tells them, and as every watcher
// saw them, over every fault and from wherever it went on.
func g15(f *finding) {
	for _, s := range f.stories {
		for i, e := range s.events {
			f.ok()
			if e.seq != int64(i+1) {
				f.violation(s, e.c, "event %d of its history (%s) has seq %d", i+1, e.kind, e.seq)
				break
			}
		}
		if n := int64(len(s.events)); n != s.last().Seq {
			f.violation(s, s.last().c, "its seq is %d and it has %d events", s.last().Seq, n)
		}
		g15told(f, s)
	}
	last := make(map[string]int64)
	for _, x := range f.seen {
		if x.event.Seq != last[x.watcher]+1 {
			f.violation(f.byID[x.execution], nil, "%s saw event %d after %d", x.watcher, x.event.Seq, last[x.watcher])
		}
		last[x.watcher] = x.event.Seq
		g15same(f, x)
	}
}

// g15told compares the history that the store tells with the one written.
func g15told(f *finding, s *story) {
	if s.record == nil {
		return
	}
	told := machine.Events(s.record, 0, 1<<20)
	if len(told) != len(s.events) {
		f.violation(s, s.last().c, "%d events are told of %d", len(told), len(s.events))
		return
	}
	for i, t := range told {
		if e := s.events[i]; t.Seq != e.seq || t.Kind != e.kind || t.Final != e.final {
			f.violation(s, e.c, "event %d is told as %s (final %t) and was %s (final %t)", e.seq, t.Kind, t.Final, e.kind, e.final)
		}
	}
}

// g15same holds what a watcher saw against what was written.
func g15same(f *finding, x sighting) {
	s := f.byID[x.execution]
	i := x.event.Seq - 1
	if s == nil || i >= int64(len(s.events)) {
		f.violation(s, nil, "%s saw event %d, which is not there", x.watcher, x.event.Seq)
		return
	}
	if e := s.events[i]; e.kind != x.event.Kind || x.event.Execution != (belay.ExecutionID{}) && x.event.Execution != x.execution {
		f.violation(s, e.c, "%s saw event %d as %s; it is %s", x.watcher, x.event.Seq, x.event.Kind, e.kind)
	}
	f.ok()
}
