package chaos

// g15: watchers miss nothing. The events of an execution are ordered, unique and
// gapless, as the store tells them and as every watcher saw them, over every
// connection that broke and server that died, to the end.
func g15(f *finding) {
	for _, s := range f.stories {
		for i := range s.Events {
			if s.Events[i].Seq != int64(i+1) {
				f.violation(s, "event %d of its history (%s) has seq %d", i+1, s.Events[i].Kind, s.Events[i].Seq)
				break
			}
			f.ok()
		}
	}
	last := make(map[string]*sighting)
	for i := range f.Seen {
		x := &f.Seen[i]
		s := f.byID[x.Execution]
		before := int64(0)
		if old := last[x.Watcher]; old != nil {
			before = old.Seq
		}
		last[x.Watcher] = x
		if x.Seq != before+1 {
			f.violation(s, "%s saw event %d after %d", x.Watcher, x.Seq, before)
		}
		if s == nil || s.at(x.Seq) == nil {
			f.violation(nil, "%s saw event %d of %s, which is not there", x.Watcher, x.Seq, x.Execution)
			continue
		}
		if ev := s.at(x.Seq); ev.Kind != x.Kind {
			f.violation(s, "%s saw event %d as %s; it is %s", x.Watcher, x.Seq, x.Kind, ev.Kind)
		}
		f.ok()
	}
	for name, x := range last {
		if s := f.byID[x.Execution]; s != nil && s.at(x.Seq) != nil && !s.at(x.Seq).Final {
			f.violation(s, "%s saw nothing after event %d of %d", name, x.Seq, len(s.Events))
		}
	}
}
