package postgres_test

import (
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

func createKey(n byte) *machine.CreateKey {
	return &machine.CreateKey{
		KeySpec: belay.KeySpec{Name: "k", Scopes: []belay.Scope{belay.ScopeRead}}, ID: belay.KeyID{n},
	}
}

// If two servers add the same object at the same time, the first adds it, and the command at the
// second is refused with CodeConflict.
func TestOneObjectAddedByTwoServers(t *testing.T) {
	a, b, _ := two(t)
	other := createKey(1)
	other.Hash = [32]byte{1} // with an equal hash it would be the same command
	replies, err := a.during(func(*machine.Rows) { b.ok(other) }, createKey(1), createKey(2))
	if err != nil || belay.CodeOf(replies[0].Err) != belay.CodeConflict || replies[1].Err != nil {
		t.Errorf("%+v (%v)", replies, err)
	}
}

// While one server changes an object, another server that wants to change the same object waits,
// and then reads the changed object.
func TestAnObjectIsChangedByOneServerAtATime(t *testing.T) {
	a, b, _ := two(t)
	a.ok(createKey(1))
	revoke := &machine.RevokeKey{Revocation: belay.Revocation{Key: belay.KeyID{1}}}
	var other machine.Reply
	var end func()
	_, err := a.during(func(*machine.Rows) { end = b.waits(func() { other = b.try(revoke) }) }, revoke)
	if end(); err != nil || other.Err != nil || !other.Replayed || other.Object.Version != 2 {
		t.Errorf("%+v (%v)", other, err)
	}
}

// A commit locks the gates to which its rows refer, like the objects that it names, and then counts
// the places and executions of the gates.
func TestGatesAreHeld(t *testing.T) {
	a, b, _ := two(t)
	limit := func(n int) *machine.SetGate {
		return &machine.SetGate{GateChange: belay.GateChange{Gate: "limit:x", Action: belay.GateSetLimit, Max: n}}
	}
	a.ok(limit(1))
	var end func()
	err := a.Commit(t.Context(), machine.Need{Counts: []belay.GateID{"limit:x"}},
		func(rows *machine.Rows) *machine.Changes {
			if len(rows.Objects) != 1 || len(rows.Counts) != 1 {
				t.Errorf("%d objects and %d counts", len(rows.Objects), len(rows.Counts))
			}
			end = b.waits(func() { b.ok(limit(2)) })
			return nil
		})
	if end(); err != nil {
		t.Error(err)
	}
}
