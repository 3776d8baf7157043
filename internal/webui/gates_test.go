package webui

import (
	"fmt"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// gatesOf makes one gate of each kind.
func gatesOf() []belay.GateDetail {
	gate := func(kind, name string, info belay.GateInfo) belay.GateDetail {
		info.ID, info.Kind, info.Name = belay.Gate(kind, name), kind, name
		return belay.GateDetail{GateInfo: info}
	}
	limit := gate(belay.GateLimit, "crawler", belay.GateInfo{Why: "its 2 places are taken", Held: 2, Waiting: 101,
		Limit: &belay.GateLimited{Max: 2, Set: 2, By: "anna", Reason: "slow"}})
	limit.Holders, limit.Line = []belay.ExecutionID{id(1), id(2)}, []belay.ExecutionID{id(3)}
	return []belay.GateDetail{
		limit,
		gate(belay.GateQueue, "gpu", belay.GateInfo{Until: noon.Add(time.Hour),
			Pause: &belay.GatePaused{Since: ago(time.Minute), By: "bob", Reason: "moving"}}),
		gate(belay.GateRate, "mail", belay.GateInfo{Open: true,
			Rate: &belay.GatePace{Max: 10, Per: belay.Duration(time.Second), Tokens: 4}}),
		gate(belay.GateResource, "card", belay.GateInfo{Open: true, Resource: &belay.GateResourceInfo{
			State: belay.ResourceSwapping, Mode: "llama",
			Swapping: &belay.ResourceSwap{Execution: id(9), To: "qwen", Since: ago(3 * time.Second)},
			Waiting:  []belay.ModeWaiting{{Mode: "qwen", Since: ago(time.Minute), Executions: 3}}}}),
		gate(belay.GateTarget, "pay", belay.GateInfo{Why: "its circuit breaker is open", Until: noon.Add(time.Minute),
			Breaker: &belay.Breaker{State: "open", FailureCount: 1, OpenedAt: ago(time.Minute)}}),
		gate(belay.GateTarget, "shop", belay.GateInfo{Why: "its circuit breaker is half open",
			Breaker: &belay.Breaker{State: "half_open", FailureCount: 5, OpenedAt: ago(time.Minute)}}),
	}
}

// The page shows the parts of each gate, and why it is shut.
func TestGatesAreListed(t *testing.T) {
	f := &fake{}
	f.gates = gatesOf()
	a := get(t, f, "/queues")
	rows := a.root.class("cards")[0].all("tr")
	for i, want := range []string{
		"crawler limit shut more than 100 wait limit: 2 of 2 places taken, set by anna: slow its 2 places are taken",
		"gpu queue paused paused for 1m0s by bob: moving; opens in 1h0m",
		"mail rate open rate: 10 runs per 1s, 4 may start now",
		"card resource open resource: swapping in the mode llama, changing to qwen for 3s",
		"pay target breaker open circuit breaker: open, 1 failure its circuit breaker is open; lets a call try in 1m0s",
		"shop target breaker half open circuit breaker: half open, 5 failures its circuit breaker is half open",
	} {
		if got := rows[i+1].words(); got != want {
			t.Errorf("row %d is %q, want %q", i, got, want)
		}
	}
}

// The page of a gate shows the executions that have its places, and those that wait. A gate that no operator and
// no execution has named has a page, too.
func TestGateShowsItsExecutions(t *testing.T) {
	f := &fake{}
	f.gates = gatesOf()
	f.list = func(q belay.Filter) (belay.Page, error) {
		if len(q.IDs) != 3 {
			t.Errorf("the page asks for %+v", q)
		}
		return belay.Page{Executions: []belay.Execution{{ID: id(1), Workflow: "crawl"}}}, nil
	}
	a := get(t, f, "/queues?gate=limit:crawler")
	a.says("crawler limit shut", "crawl "+shortID(id(1)), shortID(id(2)), shortID(id(3)),
		"These are the first of them.")
	if links := a.root.class("runs-of")[0].all("a"); len(links) != 2 || links[0].attr["href"] != here+id(1).String() {
		t.Errorf("the links to executions are %v", links)
	}
	get(t, f, "/queues?gate=resource:card").says("Mode qwen waits for 1m0s, 3 executions", "No execution waits here.")
	get(t, f, "/queues?gate=limit:none").says("No operator has set anything here")
}

// A long list of gates has pages, and counts the places of some gates only.
func TestManyGates(t *testing.T) {
	f := &fake{}
	for i := range 120 {
		g := gatesOf()[0]
		g.Name = fmt.Sprintf("gate-%03d", i)
		g.ID = belay.Gate(belay.GateLimit, g.Name)
		f.gates = append(f.gates, g)
	}
	pages, rows := 0, 0
	for next := "/queues"; next != ""; pages++ {
		a := get(t, f, next)
		rows += len(a.root.class("cards")[0].all("tr")) - 1
		next = nextOf(a)
	}
	if pages != 3 || rows != 120 {
		t.Errorf("%d pages show %d gates, want 3 and 120", pages, rows)
	}
}
