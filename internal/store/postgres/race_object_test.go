package postgres_test

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

func createKey(n byte) *machine.CreateKey {
	return &machine.CreateKey{
		KeySpec: belay.KeySpec{Name: "k", Scopes: []belay.Scope{belay.ScopeRead}}, ID: belay.KeyID{n},
	}
}

// If two servers add one object at the same time, the first adds it and the second refuses its
// command with a conflict.
func TestOneObjectAddedByTwoServers(t *testing.T) {
	a, b, _ := two(t)
	replies, err := a.during(func(*machine.Rows) { b.ok(createKey(1)) }, createKey(1), createKey(2))
	if err != nil || belay.CodeOf(replies[0].Err) != belay.CodeConflict || replies[1].Err != nil {
		t.Errorf("%+v (%v)", replies, err)
	}
}

// While one server changes an object, another server that wants to change it waits, and then sees
// the changed object.
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

// A commit also locks the objects to which its rows refer, and reads the clock after that.
func TestReferredObjectsAreLocked(t *testing.T) {
	a, b, clock := two(t)
	a.ok(createKey(1))
	before := a.Now()
	need := machine.Need{Refer: func(*machine.Rows) []machine.ObjectRef {
		clock.Advance(time.Second)
		return []machine.ObjectRef{machine.KeyRef(belay.KeyID{1})}
	}}
	var end func()
	err := a.Commit(t.Context(), need, func(rows *machine.Rows) *machine.Changes {
		if len(rows.Objects) != 1 || rows.Now < before.Add(time.Second) {
			t.Errorf("%d objects at %d, and it was %d before", len(rows.Objects), rows.Now, before)
		}
		end = b.waits(func() { b.ok(&machine.RevokeKey{Revocation: belay.Revocation{Key: belay.KeyID{1}}}) })
		return nil
	})
	if end(); err != nil {
		t.Error(err)
	}
}
