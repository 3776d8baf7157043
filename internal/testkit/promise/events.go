package promise

// G15 checks that watchers miss nothing. The events of an execution are ordered, unique and without
// a gap, both in the store and in the order in which each watcher received them, through broken
// connections and crashed servers, up to the last event.
func G15(f *Finding) {
	for _, s := range f.History.Stories {
		for i := range s.Events {
			if s.Events[i].Seq != int64(i+1) {
				f.Violation(s, "event %d of its history (%s) has seq %d", i+1, s.Events[i].Kind, s.Events[i].Seq)
				break
			}
			f.OK()
		}
		if n := int64(len(s.Events)); n != s.Execution.Seq {
			f.Violation(s, "its seq is %d and it has %d events", s.Execution.Seq, n)
		}
	}
	last := make(map[string]*Sighting)
	for i := range f.History.Seen {
		x := &f.History.Seen[i]
		f.checkSighting(x, last[x.Watcher])
		last[x.Watcher] = x
	}
	for name, x := range last {
		s := f.History.Story(x.Execution)
		if s == nil || s.At(x.Seq) == nil {
			continue
		}
		if ev := s.At(x.Seq); !ev.Final && ev.Seq != s.Execution.Seq {
			f.Violation(s, "%s saw nothing after event %d of %d", name, x.Seq, len(s.Events))
		}
	}
}

// checkSighting compares x, an event that a watcher received, with old, the event that the watcher
// received before it, and with the history.
func (f *Finding) checkSighting(x, old *Sighting) {
	s, before := f.History.Story(x.Execution), int64(0)
	if old != nil {
		before = old.Seq
	}
	if x.Seq != before+1 || old != nil && old.Execution != x.Execution {
		f.Violation(s, "%s saw event %d after %d", x.Watcher, x.Seq, before)
	}
	if s == nil || s.At(x.Seq) == nil {
		f.Violation(nil, "%s saw event %d of %s, which does not exist", x.Watcher, x.Seq, x.Execution)
		return
	}
	if ev := s.At(x.Seq); ev.Kind != x.Kind {
		f.Violation(s, "%s saw event %d as %s; it is %s", x.Watcher, x.Seq, x.Kind, ev.Kind)
	}
	f.OK()
}
