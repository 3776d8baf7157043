package trace

import (
	"strings"
	"time"
)

// branches has the times of the newest steps and waits of each branch of a workflow. The history has the end of a
// step, but not always its begin: if its worker has not reported how long the step took, the step begins when the step
// or wait before it in its branch has ended.
type branches map[string]*latest

// latest has the ends of the newest step or wait of a branch, and of it and the branches below it.
type latest struct{ own, all time.Time }

// branchOf returns the branch of a step or wait, as in "branch/step[key]"; "" for the function itself.
func branchOf(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return above(name)
}

func above(name string) string { return name[:max(0, strings.LastIndexByte(name, '/'))] }

// since returns when a step or wait of a branch can have begun, but not before the time first.
func (b branches) since(branch string, first time.Time) time.Time {
	if l := b[branch]; l != nil {
		return later(l.all, first)
	}
	for branch != "" {
		branch = above(branch)
		if l := b[branch]; l != nil && !l.own.IsZero() {
			return later(l.own, first)
		}
	}
	return first
}

// at records the end of a step or wait.
func (b branches) at(branch string, t time.Time) {
	for name, own := branch, true; ; name, own = above(name), false {
		l := b[name]
		if l == nil {
			l = &latest{}
			b[name] = l
		}
		if l.all = t; own {
			l.own = t
		}
		if name == "" {
			return
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
