package webui

import (
	"fmt"

	"github.com/belaydev/belay"
)

// The sizes of a graph of tasks, in pixels.
const (
	boxWidth, boxHeight = 180, 46
	gapX, gapY          = 48, 16
	graphMargin         = 12
)

// A graph with more tasks or arrows is not drawn, so that the size of the page is bounded.
const (
	mostNodes = 200
	mostEdges = 1000
)

// graph is a drawing of tasks from left to right: each task stands to the right of the tasks that it needs.
type graph struct {
	Width, Height int
	Label         string
	Nodes         []box
	Edges         []link
}

// box is the box of one task.
type box struct {
	X, Y, Width, Height int
	TextX, NameY, WhatY int
	Name, What, Title   string
	Class               string
}

// link is the arrow from a task to a task that needs it.
type link struct {
	Path   string
	Undoes bool
}

// graphOf draws tasks; nil if there are too many.
func graphOf(tasks []belay.Task) *graph {
	edges := 0
	for i := range tasks {
		edges += len(tasks[i].Needs)
	}
	if len(tasks) == 0 || len(tasks) > mostNodes || edges > mostEdges {
		return nil
	}
	g := &graph{Label: fmt.Sprintf("%d tasks from left to right; the list below has the same tasks", len(tasks))}
	ranks := ranksOf(tasks)
	used := map[int]int{} // how many boxes each rank has
	at := make(map[string]*box, len(tasks))
	g.Nodes = make([]box, len(tasks))
	for i := range tasks {
		t, rank := &tasks[i], ranks[tasks[i].ID]
		n := &g.Nodes[i]
		*n = boxOf(t, graphMargin+rank*(boxWidth+gapX), graphMargin+used[rank]*(boxHeight+gapY))
		used[rank]++
		at[t.ID] = n
		g.Width, g.Height = max(g.Width, n.X+boxWidth+graphMargin), max(g.Height, n.Y+boxHeight+graphMargin)
	}
	for i := range tasks {
		for _, id := range tasks[i].Needs {
			if from := at[id]; from != nil {
				g.Edges = append(g.Edges, link{arrow(from, &g.Nodes[i]), tasks[i].Compensates})
			}
		}
	}
	return g
}

func boxOf(t *belay.Task, x, y int) box {
	what := string(t.State)
	if n := t.Items; n != nil {
		what += fmt.Sprintf(" · %d/%d", n.Succeeded, n.Total)
	}
	if t.ByHand != nil {
		what = "skipped by hand"
	}
	return box{
		X: x, Y: y, Width: boxWidth, Height: boxHeight, TextX: x + 10, NameY: y + 19, WhatY: y + 36,
		Name: excerpt(t.ID, 17), What: what, Title: excerpt(t.ID, maxLine) + ": " + string(t.State),
		Class: string(t.State),
	}
}

// arrow returns the path of an arrow between two boxes.
func arrow(from, to *box) string {
	x1, y1, x2, y2 := from.X+boxWidth, from.Y+boxHeight/2, to.X, to.Y+boxHeight/2
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+gapX/2, y1, x2-gapX/2, y2, x2, y2)
}

// ranksOf returns the rank of each task: one more than the largest rank of the tasks that it needs. Documents have no
// circles; a task of a circle would get the rank 0.
func ranksOf(tasks []belay.Task) map[string]int {
	needs := make(map[string][]string, len(tasks))
	for i := range tasks {
		needs[tasks[i].ID] = tasks[i].Needs
	}
	ranks := make(map[string]int, len(tasks))
	var of func(id string) int
	of = func(id string) int {
		if r, known := ranks[id]; known {
			return r
		}
		ranks[id] = 0
		r := 0
		for _, need := range needs[id] {
			if _, exists := needs[need]; exists {
				r = max(r, of(need)+1)
			}
		}
		ranks[id] = r
		return r
	}
	for i := range tasks {
		of(tasks[i].ID)
	}
	return ranks
}
