package simulation

import (
	"github.com/belaydev/belay"
)

// g4 checks G4, that transitions are atomic, commit by commit: a commit that raises a seq writes
// the row of that seq, and the execution's state agrees with its runs. A run continues a log where
// the execution's last run stopped: the store never refuses an append of the owner because the
// chunk exists with other content.
func g4(f *finding) {
	for _, s := range f.stories {
		prev := int64(0)
		for _, r := range s.rows {
			f.OK()
			g4row(f, s, prev, r)
			prev = r.Seq
		}
	}
	for _, c := range f.commits {
		g4forks(f, c)
	}
	for _, x := range f.refusals {
		f.violation(f.byID[x.execution], nil, "the log of the run with token %d was refused: %s", x.token, x.key)
	}
}

func g4row(f *finding, s *story, prev int64, r row) {
	for seq := prev + 1; seq <= r.Seq; seq++ {
		switch c := s.wrote[seq]; {
		case c == nil && seq == r.Seq:
			f.violation(s, r.c, "seq %d is not written in the commit that raised it", r.Seq)
		case c != nil && c != r.c:
			f.violation(s, r.c, "seq %d was written in commit %d", seq, c.n)
		}
	}
	a := s.byToken[r.Token]
	if a == nil {
		return
	}
	begun := a.began != nil && a.began.n <= r.c.n || r.State == belay.Scheduled
	open := begun && (a.ended == nil || a.ended.n > r.c.n)
	if owned := r.State == belay.Running || r.State == belay.Scheduled; open != owned {
		f.violation(s, r.c, "it is %s and its run of token %d is open: %t", r.State, r.Token, open)
	}
}
