package simulation

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/belaydev/belay"
)

// g4: transitions are atomic. State, run, checkpoint, dead letter, wake-up of the
// parent: one commit has all of it or none. A resume gets the last accepted
// checkpoint of every key, and no step is carried out again that has one.
func g4(f *finding) {
	for _, s := range f.stories {
		for i, r := range s.rows {
			f.ok()
			prev := int64(0)
			if i > 0 {
				prev = s.rows[i-1].Seq
			}
			g4row(f, s, prev, r)
			g4family(f, s, i, r)
		}
	}
	for _, c := range f.calls {
		if r, isClaim := c.reply.(belay.ClaimReply); isClaim && c.end == ok {
			for i := range r.Assignments {
				g4resume(f, &r.Assignments[i])
			}
		}
		if l, isLock := c.reply.(belay.Lock); isLock && c.end == ok {
			g4resume(f, &belay.Assignment{Lease: l.Lease, Checkpoints: l.Checkpoints})
		}
	}
	for _, x := range f.steps {
		g4again(f, x)
	}
	g4logs(f)
}

// g4row checks that one commit wrote every seq it raised, and a state that its
// runs agree with.
func g4row(f *finding, s *story, prev int64, r row) {
	n := prev
	for _, e := range s.events {
		if e.seq > prev && e.seq <= r.Seq {
			if e.c != nil && e.c != r.c {
				f.violation(s, r.c, "seq %d (%s) was written in commit %d", e.seq, e.kind, e.c.n)
			}
			n = max(n, e.seq)
		}
	}
	if n != r.Seq {
		f.violation(s, r.c, "seq %d is not written in the commit that raised it", r.Seq)
	}
	a := s.byToken[r.Token]
	if a == nil {
		return
	}
	open := a.began != nil && a.began.n <= r.c.n && (a.ended == nil || a.ended.n > r.c.n)
	if owned := r.State == belay.Running || r.State == belay.Scheduled; open != owned {
		f.violation(s, r.c, "it is %s and its run of token %d is open: %t", r.State, r.Token, open)
	}
}

// g4family checks that a child's end and its parent's news are one commit.
func g4family(f *finding, s *story, i int, r row) {
	ended := r.State.Terminal() && (i == 0 || !s.rows[i-1].State.Terminal())
	p := f.byID[r.Parent]
	if !ended || p == nil {
		return
	}
	before, there := p.before(r.c)
	after, _ := p.at(r.c)
	if !there {
		return
	}
	if after.c != r.c {
		f.violation(s, r.c, "it ended and its parent %s was not told in that commit", short(r.Parent))
		return
	}
	if before.State.Terminal() || after.State.Terminal() || r.ParentGen < after.InputGen {
		return // nobody waits for it
	}
	for _, k := range p.signals {
		if k.Child == s.id && k.c == r.c {
			return
		}
	}
	f.violation(s, r.c, "it ended and its parent %s got no signal in that commit", short(r.Parent))
}

// g4resume compares what a claim handed out with what had been accepted.
func g4resume(f *finding, a *belay.Assignment) {
	s := f.byID[a.Lease.Execution]
	if s == nil {
		f.violation(nil, nil, "%s was handed out and is nowhere written", short(a.Lease.Execution))
		return
	}
	run := s.byToken[a.Lease.Token]
	if run == nil || run.began == nil {
		f.violation(s, nil, "token %d was handed out and never claimed", a.Lease.Token)
		return
	}
	at, _ := s.at(run.began)
	type key struct {
		kind belay.CheckpointKind
		key  string
	}
	want := make(map[key]*savedRow)
	for _, k := range s.saved {
		if k.Seq < run.StartedSeq && k.Seq > at.BaseSeq {
			want[key{k.Kind, k.Key}] = k
		}
	}
	if len(want) > 0 {
		f.count("resumed from checkpoints")
	}
	f.ok()
	for _, got := range a.Checkpoints {
		k := want[key{got.Kind, got.Key}]
		switch {
		case k == nil && got.Seq > run.StartedSeq: // its own, handed out again
		case k == nil, got.Seq < k.Seq, got.Seq == k.Seq && !bytes.Equal(got.Data, k.Data):
			f.violation(s, run.began, "token %d resumed with checkpoint %q of seq %d, which is not the last accepted one", a.Lease.Token, got.Key, got.Seq)
		}
		delete(want, key{got.Kind, got.Key})
	}
	for k := range want {
		f.violation(s, run.began, "token %d resumed without checkpoint %q", a.Lease.Token, k.key)
	}
}

// g4again finds steps that were carried out though they had been saved.
func g4again(f *finding, x carried) {
	s := f.byID[x.execution]
	run := s.byToken[x.token]
	if run == nil || run.began == nil {
		return
	}
	_, name, _ := strings.Cut(x.key, "/")
	name, err := url.PathUnescape(name)
	at, _ := s.at(run.began)
	for _, k := range s.saved {
		if err == nil && k.Kind == belay.KindStep && k.Key == name && k.Seq < run.StartedSeq && k.Seq > at.BaseSeq {
			f.violation(s, run.began, "step %q was carried out again with token %d though seq %d has it", name, x.token, k.Seq)
		}
	}
}

// g4logs checks that a run writes on where the last one of its execution has stopped:
// a lawful owner is never told that its piece of a log is there already.
func g4logs(f *finding) {
	for _, x := range f.refusals {
		s := f.byID[x.execution]
		f.violation(s, nil, "the log of the run with token %d was refused: %s", x.token, x.key)
	}
}
