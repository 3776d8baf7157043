package definition

import (
	"fmt"
	"slices"
	"strings"
)

// reaches reports the circles of tasks that need each other.
func (v *validator) reaches() {
	const open, done = 1, 2
	state := map[*Task]int{}
	var trail []*Task
	var visit func(t *Task)
	visit = func(t *Task) {
		state[t] = open
		trail = append(trail, t)
		for i, id := range t.Needs {
			need := v.doc.byID[id]
			switch {
			case need == nil:
			case state[need] == open:
				v.circle(t, i, trail[slices.Index(trail, need):])
			case state[need] == 0:
				visit(need)
			}
		}
		trail = trail[:len(trail)-1]
		state[t] = done
	}
	for _, t := range v.doc.Tasks {
		if state[t] == 0 {
			visit(t)
		}
	}
}

// circle reports one circle, at the need that closes it.
func (v *validator) circle(t *Task, need int, trail []*Task) {
	v.circular = true
	pos := entry(t.node.get("needs"), need).at
	if len(trail) == 1 {
		v.add(pos, "remove it", "task %s needs itself", quoted(t.ID))
		return
	}
	names := make([]string, 0, len(trail)+1)
	for _, x := range trail {
		names = append(names, x.ID)
	}
	names = append(names, trail[0].ID)
	if len(names) > 12 {
		names = append(append(names[:6:6], "…"), names[len(names)-5:]...)
	}
	v.add(pos, "remove one of these needs", "the tasks wait for each other: %s", strings.Join(names, " needs "))
}

// before reports whether a task has certainly ended when another one starts. The graph must have no circle.
func (v *validator) before(t, after *Task) bool {
	if v.ancestors == nil {
		v.ancestors = map[*Task]bits{}
	}
	return v.ancestorsOf(after).has(t.Number)
}

// ancestorsOf returns the numbers of the tasks that a task needs, directly or through other tasks.
func (v *validator) ancestorsOf(t *Task) bits {
	if set := v.ancestors[t]; set != nil {
		return set
	}
	set := make(bits, (MaxTasks+63)/64)
	for _, id := range t.Needs {
		if need := v.doc.byID[id]; need != nil {
			set.add(need.Number)
			for i, word := range v.ancestorsOf(need) {
				set[i] |= word
			}
		}
	}
	v.ancestors[t] = set
	return set
}

// bits is a set of small numbers.
type bits []uint64

func (b bits) add(n int) { b[n/64] |= 1 << (n % 64) }

func (b bits) has(n int) bool { return b[n/64]&(1<<(n%64)) != 0 }

// Ranks returns the tasks in ranks: each task stands one rank after the last task that it needs. Tasks that compensate
// stand in the rank after the task whose work they undo.
func (d *Document) Ranks() [][]*Task {
	rank := map[*Task]int{}
	var of func(t *Task) int
	of = func(t *Task) int {
		if r, ok := rank[t]; ok {
			return r
		}
		r := 0
		for _, id := range t.Needs {
			r = max(r, of(d.byID[id])+1)
		}
		rank[t] = r
		return r
	}
	var ranks [][]*Task
	for _, t := range d.Tasks {
		r := of(t)
		for len(ranks) <= r {
			ranks = append(ranks, nil)
		}
		ranks[r] = append(ranks[r], t)
	}
	return ranks
}

// Leaves returns the tasks that no other task needs, without those that compensate.
func (d *Document) Leaves() []*Task {
	var all []*Task
	for _, t := range d.Tasks {
		if !t.Undoes && !slices.ContainsFunc(t.NeededBy, func(id string) bool { return !d.byID[id].Undoes }) {
			all = append(all, t)
		}
	}
	return all
}

// Brief describes a task in a few words.
func (t *Task) Brief() string {
	s := t.Uses
	if t.Uses == "workflow" && t.With != nil {
		s += " " + t.With.node.get("name").text()
	}
	if t.Foreach != nil {
		s += ", for each item"
	}
	if t.If != nil {
		s += ", if " + t.If.Source
	}
	if t.Undoes {
		s += ", to compensate " + t.Needs[0]
	}
	return s
}

// Text draws the graph as text: one line for each task, rank by rank.
func (d *Document) Text() string {
	var b strings.Builder
	width := 0
	for _, t := range d.Tasks {
		width = max(width, len(t.ID))
	}
	for i, rank := range d.Ranks() {
		for _, t := range rank {
			fmt.Fprintf(&b, "%3d  %-*s  %s", i+1, width, t.ID, t.Brief())
			if len(t.Needs) > 0 && !t.Undoes {
				fmt.Fprintf(&b, "  (after %s)", strings.Join(t.Needs, ", "))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Mermaid draws the graph in the language of Mermaid.
func (d *Document) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for _, t := range d.Tasks {
		// A quote would end the label, and a label is HTML: both are written as entities.
		label := strings.NewReplacer("&", "#amp;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "\n", " ", "`", "'").Replace(
			t.ID + ": " + t.Brief())
		open, end := "[", "]"
		switch {
		case t.Foreach != nil:
			open, end = "[[", "]]"
		case t.Kind != nil && t.Kind.Inline:
			open, end = "([", "])"
		}
		// A prefix keeps ids apart from the words of the language, such as end.
		fmt.Fprintf(&b, "  t_%s%s\"%s\"%s\n", t.ID, open, label, end)
	}
	for _, t := range d.Tasks {
		for _, id := range t.Needs {
			arrow := "-->"
			if t.Undoes {
				arrow = "-.->|on failure|"
			}
			fmt.Fprintf(&b, "  t_%s %s t_%s\n", id, arrow, t.ID)
		}
	}
	return b.String()
}
