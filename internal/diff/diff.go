// Package diff compares two texts line by line, and writes the difference in the unified format.
//
// Lines that occur exactly once in each text, in the same order, are anchors. Equal lines around the anchors belong to
// both texts; everything between them was replaced. So the time grows only with n·log n for n lines, whatever the texts
// contain, and the difference is seldom longer than necessary: people see lines that they recognize as unchanged.
package diff

import (
	"fmt"
	"sort"
	"strings"
)

// around is the number of unchanged lines that are shown before and after a change.
const around = 3

// Unified returns the difference between two texts, with the names of the texts in its head; it is empty if the texts
// are equal.
func Unified(oldName, newName, oldText, newText string) string {
	if oldText == newText {
		return ""
	}
	x, y := lines(oldText), lines(newText)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", oldName, newName)
	var h hunk
	end := pair{}
	for _, m := range anchors(x, y) {
		if m.x < end.x { // an equal line before it has reached it
			continue
		}
		begin := m
		for begin.x > end.x && begin.y > end.y && x[begin.x-1] == y[begin.y-1] {
			begin.x, begin.y = begin.x-1, begin.y-1
		}
		h.replace(x[end.x:begin.x], y[end.y:begin.y])
		for end = m; end.x < len(x) && end.y < len(y) && x[end.x] == y[end.y]; {
			end.x, end.y = end.x+1, end.y+1
		}
		h.keep(&out, x[begin.x:end.x], begin, end.x == len(x) && end.y == len(y))
	}
	return out.String()
}

// pair is a place in the old and a place in the new text, as numbers of lines from 0.
type pair struct{ x, y int }

// hunk is a group of changes that are near to each other, with the unchanged lines around them.
type hunk struct {
	begin    pair
	old, new int // the numbers of lines
	body     []string
	changed  bool
}

func (h *hunk) replace(gone, added []string) {
	for _, l := range gone {
		h.body = append(h.body, "-"+l)
	}
	for _, l := range added {
		h.body = append(h.body, "+"+l)
	}
	h.old, h.new = h.old+len(gone), h.new+len(added)
	h.changed = h.changed || len(gone)+len(added) > 0
}

// keep adds unchanged lines, which begin at the given place. It writes the hunk if the next change is far away, or if
// the texts end here.
func (h *hunk) keep(out *strings.Builder, same []string, at pair, last bool) {
	if h.changed && (last || len(same) > 2*around) {
		h.same(same[:min(around, len(same))])
		h.write(out)
	}
	if !h.changed { // the hunk begins with the last lines before the next change
		h.body, h.old, h.new = nil, 0, 0
		n := max(0, len(same)-around)
		h.begin = pair{at.x + n, at.y + n}
		same = same[n:]
	}
	h.same(same)
}

func (h *hunk) same(list []string) {
	for _, l := range list {
		h.body = append(h.body, " "+l)
	}
	h.old, h.new = h.old+len(list), h.new+len(list)
}

func (h *hunk) write(out *strings.Builder) {
	first := func(at, n int) int { // a range without lines names the line before it
		if n == 0 {
			return at
		}
		return at + 1
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", first(h.begin.x, h.old), h.old, first(h.begin.y, h.new), h.new)
	for _, l := range h.body {
		out.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
	*h = hunk{}
}

// lines splits a text after each line break.
func lines(text string) []string {
	l := strings.SplitAfter(text, "\n")
	if l[len(l)-1] == "" {
		l = l[:len(l)-1]
	}
	return l
}

// anchors returns the pairs of equal lines that occur once in each text: the longest list in which both places grow.
// The pairs before the first and after the last lines of the texts enclose the list.
func anchors(x, y []string) []pair {
	type count struct{ x, y, inX, inY int }
	seen := make(map[string]*count, len(x))
	for i, l := range x {
		c := seen[l]
		if c == nil {
			c = &count{}
			seen[l] = c
		}
		c.inX, c.x = c.inX+1, i
	}
	for i, l := range y {
		if c := seen[l]; c != nil {
			c.inY, c.y = c.inY+1, i
		}
	}
	var all []pair // in the order of x
	for i, l := range x {
		if c := seen[l]; c.inX == 1 && c.inY == 1 {
			all = append(all, pair{i, c.y})
		}
	}
	// ends[n] is the pair with the smallest y that ends a growing list of n+1 pairs.
	ends, before := make([]int, 0, len(all)), make([]int, len(all))
	for i, p := range all {
		n := sort.Search(len(ends), func(n int) bool { return all[ends[n]].y >= p.y })
		before[i] = -1
		if n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	out := make([]pair, len(ends)+2)
	out[len(ends)+1] = pair{len(x), len(y)}
	if len(ends) > 0 {
		for n, i := len(ends), ends[len(ends)-1]; i >= 0; n, i = n-1, before[i] {
			out[n] = all[i]
		}
	}
	return out
}
