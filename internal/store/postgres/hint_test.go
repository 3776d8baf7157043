package postgres

import (
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/google/go-cmp/cmp"
)

// What is told of a commit is what is heard of it, and fits the notifications
// that PostgreSQL takes.
func TestHintsSayWhatWasCommitted(t *testing.T) {
	var told telling
	ids := make([]belay.ExecutionID, 3*mostExecutions)
	c := &machine.Changes{}
	for i := range ids {
		ids[i] = belay.ExecutionID{1, 15: byte(i), 14: byte(i >> 8)}
		c.Executions = append(c.Executions, &machine.Execution{ID: ids[i], State: belay.Running})
	}
	c.Executions[len(ids)-1].State = belay.Failed
	ready := c.Executions[0]
	ready.State, ready.DueAt, ready.Lane = belay.Pending, 5, 77
	c.Executions[1].CheckAt = 9
	c.Executions[2].Attention, c.Executions[2].Worker = true, belay.WorkerID{2}
	c.Workers = []*machine.Worker{{ID: belay.WorkerID{3}, State: belay.WorkerDraining}, {ID: belay.WorkerID{4}, State: belay.WorkerOpen, New: true, OpenedAt: 8}}
	c.Runs = []*machine.Run{{Worker: belay.WorkerID{5}, EndedSeq: 3}, {Worker: belay.WorkerID{6}, EndedSeq: 3, Op: belay.OpID{1}}}
	told.note(&machine.Rows{Now: 10}, c)
	var heard store.Hint
	seen, ended := make(map[uint32]struct{}), make(map[uint32]struct{})
	workers := make(map[belay.WorkerID]bool)
	for i, text := range told.payloads([16]byte{9}) {
		if len(text) >= 8000 {
			t.Errorf("a notification of %d bytes", len(text))
		}
		server, h, err := parseHint(text)
		if err != nil || server != ([16]byte{9}) {
			t.Fatalf("heard %x, %v", server, err)
		}
		if i == 0 {
			heard = h
		}
		for k := range h.Changed.Hashes {
			seen[k] = struct{}{}
		}
		for k := range h.Ended.Hashes {
			ended[k] = struct{}{}
		}
	}
	for _, id := range heard.Workers {
		workers[id] = true
	}
	if diff := cmp.Diff(map[belay.WorkerID]bool{{2}: true, {3}: true, {5}: true}, workers); diff != "" {
		t.Errorf("workers (-want +heard):\n%s", diff)
	}
	if diff := cmp.Diff([]store.LaneHint{{Lane: 77, At: 5}}, heard.Lanes); diff != "" || heard.Look != 8 || heard.Lost {
		t.Errorf("lanes (-want +heard):\n%s\nlook at %d, lost: %t", diff, heard.Look, heard.Lost)
	}
	all := store.Executions{Hashes: seen}
	over := store.Executions{Hashes: ended}
	for i, id := range ids {
		last := i == len(ids)-1
		if all.Has(id) == last || over.Has(id) != last {
			t.Fatalf("%s changed: %t, ended: %t", id, all.Has(id), over.Has(id))
		}
	}
	if all.Has(belay.ExecutionID{1, 12: 1}) {
		t.Error("one that did not change is heard of")
	}
}

// More than can be told is told as a loss, or as a change of everything.
func TestHintsAreBounded(t *testing.T) {
	var many, lanes telling
	for i := range mostExecutions*mostPayloads + 1 {
		e := &machine.Execution{ID: belay.ExecutionID{15: byte(i), 14: byte(i >> 8)}, State: belay.Running}
		many.note(nil, &machine.Changes{Executions: []*machine.Execution{e}})
	}
	for i := range mostLanes + 1 {
		e := &machine.Execution{State: belay.Pending, DueAt: 1, Lane: machine.LaneID(i)}
		lanes.note(nil, &machine.Changes{Executions: []*machine.Execution{e}})
	}
	if all := many.payloads([16]byte{}); len(all) != 1 {
		t.Errorf("%d notifications", len(all))
	} else if _, h, err := parseHint(all[0]); err != nil || h.Lost || !h.Changed.Has(belay.ExecutionID{7}) {
		t.Errorf("heard %+v, %v", h, err)
	}
	if all := lanes.payloads([16]byte{}); len(all) != 1 {
		t.Errorf("%d notifications", len(all))
	} else if _, h, err := parseHint(all[0]); err != nil || !h.Lost {
		t.Errorf("heard %+v, %v", h, err)
	}
}

// Whatever somebody sends to the channel is read or refused.
func FuzzParseHint(f *testing.F) {
	f.Add((&telling{look: 3, changed: []uint32{1, 2}}).payload([16]byte{1}, flagMany, []uint32{1}, []uint32{2}))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		_, h, err := parseHint(text)
		if err != nil && (h.Lost || h.Look != 0 || h.Lanes != nil || h.Workers != nil || !h.Changed.None()) {
			t.Errorf("refused, and %+v", h)
		}
	})
}
