package chaos

import (
	"slices"

	"github.com/belaydev/belay"
)

// agents checks that restarts of servers and of the database do not kill the processes of a
// command. A command has the same processes from its beginning to its end, including a process that
// left the command's session. Each of these processes writes the numbers 1, 2, 3 and so on to a
// file, and no number is missing; a freeze of the command may only delay the numbers. At the end no
// process of a cancelled command is left.
func agents(f *finding) {
	for _, a := range f.Agents {
		s := f.byID[a.Execution]
		if s == nil {
			f.Violation(nil, "%s does not exist", a.Name)
			continue
		}
		want := belay.Succeeded
		if a.Cancelled {
			want = belay.Cancelled
		}
		if len(s.Runs) != 1 || s.Execution.State != want {
			f.Violation(s, "%s took %d runs and is %s", a.Name, len(s.Runs), s.Execution.State)
		}
		if len(a.Alive) > 0 {
			f.Violation(s, "%s has ended and left processes %v", a.Name, a.Alive)
		}
		for _, t := range a.Trees {
			if len(t.PIDs) != 1 || t.Torn != "" {
				f.Violation(s, "%s was carried out by processes %v: %s", a.Name, t.PIDs, t.Torn)
			}
			if len(t.Gaps) > 0 {
				f.Count("command frozen and thawed")
			}
			f.OK()
		}
	}
}

// longestFreeze returns, for each process of a command that was frozen, the longest time in which
// it wrote nothing.
func (b *book) longestFreeze() (all []string) {
	for _, a := range b.Agents {
		for _, t := range a.Trees {
			if len(t.Gaps) > 0 {
				all = append(all, slices.Max(t.Gaps).Round(promptly/100).String())
			}
		}
	}
	return all
}

// inputs checks that every invalid input is refused with a status that says why.
func inputs(f *finding) {
	for status, n := range f.Bad {
		f.Looked += n
		if status == "500" {
			f.Violation(nil, "%d bad inputs were answered with 500", n)
		}
	}
	for _, s := range f.Passed {
		f.Violation(nil, "%s", s)
	}
}
