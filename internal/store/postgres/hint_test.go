package postgres

import (
	"maps"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/google/go-cmp/cmp"
)

// The hints of a commit (messages to other servers) name everything that the commit has changed,
// and fit into PostgreSQL's notifications.
func TestHintsSayWhatWasCommitted(t *testing.T) {
	var hints outgoing
	ids := make([]belay.ExecutionID, mostExecutions/2)
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
	c.Workers = []*machine.Worker{{
		ID: belay.WorkerID{3}, State: belay.WorkerDraining,
	}, {ID: belay.WorkerID{4}, State: belay.WorkerOpen, New: true, OpenedAt: 8}}
	c.Runs = []*machine.Run{
		{Worker: belay.WorkerID{5}, EndedSeq: 3}, {Worker: belay.WorkerID{6}, EndedSeq: 3, Op: belay.OpID{1}},
	}
	hints.note(&machine.Rows{Now: 10}, c)
	var first store.Hint
	seen, ended := make(map[uint32]struct{}), make(map[uint32]struct{})
	workers := make(map[belay.WorkerID]bool)
	for i, text := range hints.payloads([16]byte{9}) {
		if len(text) >= 8000 {
			t.Errorf("a notification of %d bytes", len(text))
		}
		server, h, err := parseHint(text)
		if err != nil || server != ([16]byte{9}) {
			t.Fatalf("the hint is from server %x, %v", server, err)
		}
		if i == 0 {
			first = h
		}
		for k := range h.Changed.Hashes {
			seen[k] = struct{}{}
		}
		for k := range h.Ended.Hashes {
			ended[k] = struct{}{}
		}
	}
	for _, id := range first.Workers {
		workers[id] = true
	}
	if diff := cmp.Diff(map[belay.WorkerID]bool{{2}: true, {3}: true, {5}: true}, workers); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]store.LaneHint{{Lane: 77, At: 5}}, first.Lanes); diff != "" || first.Look != 8 || first.Lost {
		t.Errorf("lanes (-want +got):\n%s\nlook at %d, lost: %t", diff, first.Look, first.Lost)
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
		t.Error("an execution that did not change is in the hints")
	}
}

// received combines the hints of several notifications.
func received(t *testing.T, texts []string) store.Hint {
	t.Helper()
	all := store.Hint{Changed: store.Executions{Hashes: make(map[uint32]struct{})}}
	for _, text := range texts {
		_, h, err := parseHint(text)
		if err != nil || len(text) >= 8000 {
			t.Fatalf("a notification of %d bytes: %v", len(text), err)
		}
		all.Lost, all.AnyWorker, all.AnyLane = all.Lost || h.Lost, all.AnyWorker ||
			h.AnyWorker, max(all.AnyLane, h.AnyLane)
		all.Lanes, all.Workers = append(all.Lanes, h.Lanes...), append(all.Workers, h.Workers...)
		all.Changed.All = all.Changed.All || h.Changed.All
		maps.Copy(all.Changed.Hashes, h.Changed.Hashes)
	}
	return all
}

// Up to a maximum number, hints (messages about a commit) name each execution, lane and session, in
// as many notifications as necessary. Above the maximum, a hint says for that kind that any of them
// may have changed. It does not say that hints were lost, because servers would then check
// everything and request a heartbeat from every worker.
func TestHintsAreBounded(t *testing.T) {
	for _, more := range []int{0, 1} {
		var executions, lanes, workers outgoing
		for i := range mostExecutions + more {
			e := &machine.Execution{ID: belay.ExecutionID{15: byte(i), 14: byte(i >> 8)}, State: belay.Running}
			executions.note(nil, &machine.Changes{Executions: []*machine.Execution{e}})
		}
		for i := range mostLanes + more {
			e := &machine.Execution{State: belay.Pending, DueAt: machine.Time(5 + i), Lane: 1<<62 + machine.LaneID(i)}
			lanes.note(nil, &machine.Changes{Executions: []*machine.Execution{e}})
		}
		lanes.note(nil, &machine.Changes{
			Executions: []*machine.Execution{{State: belay.Pending, DueAt: 4, Lane: 1 << 62}},
		})
		for i := range mostWorkers + more {
			x := &machine.Worker{ID: belay.WorkerID{15: byte(i), 14: byte(i >> 8)}, State: belay.WorkerDraining}
			workers.note(nil, &machine.Changes{Workers: []*machine.Worker{x}})
		}
		for what, texts := range map[string][]string{
			"executions": executions.payloads([16]byte{}), "lanes": lanes.payloads([16]byte{}),
			"workers": workers.payloads([16]byte{}),
		} {
			h := received(t, texts)
			want := store.Hint{AnyWorker: what == "workers" && more > 0}
			if what == "lanes" && more > 0 {
				want.AnyLane = 4
			}
			if h.Lost || h.AnyWorker != want.AnyWorker || h.AnyLane != want.AnyLane ||
				h.Changed.All != (what == "executions" && more > 0) {
				t.Errorf("%d more %s than the maximum: lost %t, any lane from %d, any worker %t, any execution %t",
					more, what, h.Lost, h.AnyLane, h.AnyWorker, h.Changed.All)
			}
			named := map[string]int{
				"executions": len(h.Changed.Hashes), "lanes": len(h.Lanes), "workers": len(h.Workers),
			}
			all := map[string]int{"executions": mostExecutions, "lanes": mostLanes, "workers": mostWorkers}
			if more > 0 && named[what] > 0 || more == 0 && named[what] != all[what] {
				t.Errorf("%d more %s than the maximum: named %d", more, what, named[what])
			}
			if more > 0 && len(texts) > 1 {
				t.Errorf("%s: %d notifications that say nothing", what, len(texts))
			}
		}
	}
}

// parseHint reads or refuses every text that a client may send to the channel, and never panics.
func FuzzParseHint(f *testing.F) {
	f.Add(payload{look: 3, flags: flagAnyChanged, ended: []uint32{1}, changed: []uint32{2}}.text([16]byte{1}))
	f.Add(payload{
		flags: flagAnyLane | flagAnyWorker, anyLane: 9, lanes: []store.LaneHint{{Lane: 1, At: 2}},
	}.text([16]byte{1}))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		_, h, err := parseHint(text)
		if err != nil && (h.Lost || h.Look != 0 || h.Lanes != nil || h.Workers != nil || !h.Changed.None()) {
			t.Errorf("refused, and %+v", h)
		}
	})
}

// A schedule whose slot comes soon wakes the sweepers of the other servers, and not those that keep API keys.
func TestHintsHaveTheTimesOfObjects(t *testing.T) {
	var o outgoing
	o.note(nil, &machine.Changes{Objects: []*machine.Object{
		{ObjectRef: machine.ScheduleRef("a"), NextAt: 70}, {ObjectRef: machine.ScheduleRef("b"), NextAt: 50},
		{ObjectRef: machine.ScheduleRef("c")},
	}})
	if o.look != 50 || o.objects {
		t.Errorf("look at %d, objects: %t", o.look, o.objects)
	}
	o.note(nil, &machine.Changes{Objects: []*machine.Object{{ObjectRef: machine.KeyRef(belay.KeyID{1})}}})
	if o.look != 50 || !o.objects {
		t.Errorf("look at %d, objects: %t", o.look, o.objects)
	}
}

// Deliveries of webhooks are no hints for other servers, and changes of their terms are.
func TestHintsHaveTheTermsOfWebhooks(t *testing.T) {
	var o outgoing
	objects := []*machine.Object{
		{ObjectRef: machine.WebhookRef("h")}, {ObjectRef: machine.ObjectRef{Kind: machine.DeliveryObject, Name: "h/1"}},
	}
	o.note(nil, &machine.Changes{Objects: objects})
	if o.objects {
		t.Error("a delivery is a hint")
	}
	o.note(nil, &machine.Changes{Objects: objects, Audit: []*machine.Audit{{ObjectRef: machine.WebhookRef("h")}}})
	if !o.objects {
		t.Error("other terms are no hint")
	}
}
