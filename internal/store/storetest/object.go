package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// query reads one part of a list.
func (e *env) query(q store.Query) store.Found {
	e.Helper()
	f, err := e.store.Query(e.Context(), q)
	if err != nil {
		e.Fatalf("query %+v: %v", q, err)
	}
	return f
}

// object makes a new object.
func object(kind machine.ObjectKind, name, body string) *machine.Object {
	return &machine.Object{
		ObjectRef: machine.ObjectRef{Kind: kind, Name: name}, Version: 1, UpdatedAt: 1, Body: []byte(body),
	}
}

// apiKeys lists all API keys, in the order of their ids.
func (e *env) apiKeys() []*machine.APIKey {
	e.Helper()
	objects, err := store.All(e.Context(), e.store, machine.KeyObject)
	if err != nil {
		e.Fatal(err)
	}
	var keys []*machine.APIKey
	for _, o := range objects {
		k, err := machine.ReadAPIKey(o)
		if err != nil {
			e.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys
}

var objectCases = []testCase{
	{"keys are listed oldest first, revoked ones too, and found by id", func(e *env) {
		var ids []belay.KeyID
		for i, scopes := range [][]belay.Scope{{belay.ScopeAdmin}, {belay.ScopeRead, belay.ScopeWorker}} {
			ids = append(ids, e.id())
			e.ok(&machine.CreateKey{
				KeySpec: belay.KeySpec{Name: named("key", i), Scopes: scopes}, ID: ids[i], Hash: [32]byte{byte(i)},
			})
			e.clock.Advance(time.Second)
		}
		before := e.apiKeys()
		e.ok(&machine.RevokeKey{Revocation: belay.Revocation{Key: ids[0], Actor: "me"}})
		all := e.apiKeys()
		if len(all) != 2 || all[0].ID != ids[0] || all[0].RevokedAt != e.now() || all[1].ID != ids[1] ||
			all[1].RevokedAt != 0 {
			e.Errorf("keys %+v", all)
		}
		before[0].RevokedAt = all[0].RevokedAt
		e.same("the other fields", before, all)
		one, other := machine.KeyRef(ids[1]), machine.KeyRef(e.id())
		found := e.rows(machine.Need{Objects: []machine.ObjectRef{one, other, one}}).Objects
		e.same("by id", e.query(store.Query{Of: store.Objects, Kind: machine.KeyObject}).Objects[1:], found)
		trail := e.query(store.Query{Of: store.Trail}).Trail
		if len(trail) != 3 || trail[0].Action != "revoke" || trail[0].Actor != "me" || trail[0].At != e.now() ||
			trail[0].Version != 2 ||
			trail[0].ObjectRef != machine.KeyRef(ids[0]) || trail[2].Action != "create" {
			e.Errorf("the audit is %+v", trail)
		}
		if r := e.fold(&machine.CreateKey{KeySpec: belay.KeySpec{Name: "again", Scopes: all[0].Scopes},
			ID: ids[0], Hash: [32]byte{9}})[0]; belay.CodeOf(r.Err) != belay.CodeConflict {
			e.Errorf("the same key made twice: %v", r.Err)
		}
	}},
	{"objects of different kinds may have one name, and each comes once", func(e *env) {
		all := []*machine.Object{object("a", "x", "1"), object("a", "y", "2"), object("b", "x", "3")}
		e.mustWrite(&machine.Changes{Objects: all})
		refs := []machine.ObjectRef{
			all[2].ObjectRef, all[0].ObjectRef, all[2].ObjectRef, {Kind: "b", Name: "y"}, {Kind: "c", Name: "x"},
		}
		rows := e.rows(machine.Need{Objects: refs})
		sortRows(rows)
		e.same("objects", []*machine.Object{all[0], all[2]}, rows.Objects)
	}},
	{"a change to another version than the stored one is refused", func(e *env) {
		first := object("a", "x", "1")
		e.mustWrite(&machine.Changes{Objects: []*machine.Object{first}})
		second := object("a", "x", "2")
		second.Version, second.Was, second.NextAt, second.UpdatedBy = 2, 1, 7, "me"
		e.mustWrite(&machine.Changes{Objects: []*machine.Object{second}})
		want := *second
		want.Was = 0
		there := func() []*machine.Object { return e.query(store.Query{Of: store.Objects, Kind: "a"}).Objects }
		e.same("changed", []*machine.Object{&want}, there())
		for what, wrong := range map[string]*machine.Object{
			"an object that exists": object("a", "x", "3"),
			"an earlier version":    {ObjectRef: first.ObjectRef, Version: 2, Was: 1, Body: []byte("3")},
			"a later version":       {ObjectRef: first.ObjectRef, Version: 4, Was: 3, Body: []byte("3")},
			"an object that does not exist": {ObjectRef: machine.ObjectRef{Kind: "a", Name: "y"}, Version: 2, Was: 1,
				Body: []byte("3")},
		} {
			other := object("a", "other", "with it")
			err := e.write(&machine.Changes{Objects: []*machine.Object{other, wrong}, Audit: []*machine.Audit{
				{At: 1, ObjectRef: wrong.ObjectRef, Action: "x"},
			}})
			if belay.CodeOf(err) != belay.CodeInternal {
				e.Errorf("%s is written: %v", what, err)
			}
			e.same("after "+what, []*machine.Object{&want}, there())
			e.same("the audit after "+what, []*machine.Audit(nil), e.query(store.Query{Of: store.Trail}).Trail)
		}
	}},
	{"objects are listed in the order of the bytes of their names, in parts", func(e *env) {
		c := &machine.Changes{Objects: []*machine.Object{object("b", "a", "1"), object("Z", "a", "1")}}
		names := []string{"", "B", "a", "a b", "a.b", "ab", "z", "ä", "日本"}
		for i, name := range names[1:] {
			c.Objects = append(c.Objects, object("a", name, strings.Repeat("x", 1+100*i)))
		}
		e.mustWrite(c)
		for limit := range 10 {
			var got []string
			parts := 0
			for q := (store.Query{Of: store.Objects, Kind: "a", Limit: limit}); ; parts++ {
				f := e.query(q)
				if limit > 0 && len(f.Objects) > limit || len(f.Objects) == 0 {
					e.Fatalf("a part of %d with the limit %d", len(f.Objects), limit)
				}
				for _, o := range f.Objects {
					got = append(got, o.Name)
				}
				if q.After = f.Next; f.Next == "" {
					break
				}
			}
			e.same(named("names by", limit), names[1:], got)
			if want := 7 / max(1, limit); limit > 0 && parts != want {
				e.Errorf("with the limit %d there are %d parts before the last, want %d", limit, parts, want)
			}
		}
	}},
	{"a part of a list keeps to its limit of bytes, and has at least one row", func(e *env) {
		c := &machine.Changes{}
		for i := range 4 {
			c.Objects = append(c.Objects, object("a", named("o", i), strings.Repeat("x", 1000*(i+1))))
			c.Audit = append(c.Audit, &machine.Audit{
				At: machine.Time(i), ObjectRef: c.Objects[i].ObjectRef, Version: 1, Action: "make",
				Reason: strings.Repeat("y", 1000*(4-i)),
			})
		}
		e.mustWrite(c)
		for _, of := range []store.Listing{store.Objects, store.Trail} {
			for bytes, want := range map[int]int{1: 1, 1200: 1, 1201: 2, 3400: 2, 3401: 3, 6600: 3, 6601: 4, 0: 4} {
				f := e.query(store.Query{Of: of, Kind: "a", Bytes: bytes})
				if n := len(f.Objects) + len(f.Trail); n != want || (f.Next == "") != (want == 4) {
					e.Errorf("list %d: %d bytes hold %d rows, and %q follows, want %d", of, bytes, n, f.Next, want)
				}
				for i, o := range f.Objects {
					e.same("body", c.Objects[i].Body, o.Body)
				}
			}
		}
		whole := &machine.Changes{}
		for i := range 3 {
			whole.Objects = append(whole.Objects, object("large", named("o", i), strings.Repeat("x", 600<<10)))
		}
		e.mustWrite(whole)
		if f := e.query(store.Query{Of: store.Objects, Kind: "large"}); len(f.Objects) != 2 || f.Next != "o-1" {
			e.Errorf("without a bound %d rows of 600 KiB come, and %q follows", len(f.Objects), f.Next)
		}
	}},
	{"the audit is listed newest first, in parts", func(e *env) {
		c := &machine.Changes{}
		for _, at := range []machine.Time{2, 1, 3} {
			for _, kind := range []machine.ObjectKind{"b", "B"} {
				for _, name := range []string{"ä", "a/b", "a"} {
					for version := range int64(2) {
						c.Audit = append(c.Audit, &machine.Audit{
							At: at, ObjectRef: machine.ObjectRef{
								Kind: kind, Name: name,
							}, Version: version, Action: fmt.Sprint(len(c.Audit)),
						})
					}
				}
			}
		}
		e.mustWrite(c)
		want := slices.SortedFunc(slices.Values(c.Audit), func(a, b *machine.Audit) int {
			return slices.Compare([]string{
				fmt.Sprint(b.At), string(b.Kind), b.Name, fmt.Sprint(b.Version),
			}, []string{fmt.Sprint(a.At), string(a.Kind), a.Name, fmt.Sprint(a.Version)})
		})
		for _, limit := range []int{0, 1, 5, 36, 37} {
			var got []*machine.Audit
			for q := (store.Query{Of: store.Trail, Limit: limit}); ; {
				f := e.query(q)
				if limit > 0 && len(f.Trail) > limit || len(f.Trail) == 0 {
					e.Fatalf("a part of %d with the limit %d", len(f.Trail), limit)
				}
				got = append(got, f.Trail...)
				if q.After = f.Next; f.Next == "" {
					break
				}
			}
			e.same(named("audit by", limit), want, got)
		}
		if err := e.write(&machine.Changes{Audit: c.Audit[:1]}); belay.CodeOf(err) != belay.CodeInternal {
			e.Errorf("an action is written twice: %v", err)
		}
	}},
	{"a part of a list has at most 1,000 rows, and 100 by default", func(e *env) {
		c := &machine.Changes{}
		for i := range 1002 {
			c.Objects = append(c.Objects, object("a", fmt.Sprintf("%04d", i), "1"))
		}
		e.mustWrite(c)
		for limit, want := range map[int]int{0: 100, -1: 100, 1000: 1000, 5000: 1000} {
			if n := len(e.query(store.Query{Of: store.Objects, Kind: "a", Limit: limit}).Objects); n != want {
				e.Errorf("the limit %d gives %d rows, want %d", limit, n, want)
			}
		}
		all, err := store.All(e.Context(), e.store, "a")
		e.same("all", c.Objects, all)
		e.same("error", nil, err)
	}},
	{"an invalid cursor and an unknown list are refused", func(e *env) {
		for _, cursor := range []string{"x", "1/2/a", "x/1/a/b", "1/x/a/b"} {
			if _, err := e.store.Query(e.Context(), store.Query{Of: store.Trail,
				After: cursor}); belay.CodeOf(err) != belay.CodeInvalid {
				e.Errorf("the cursor %s: %v", cursor, err)
			}
		}
		if _, err := e.store.Query(e.Context(), store.Query{}); belay.CodeOf(err) != belay.CodeInternal {
			e.Errorf("no list: %v", err)
		}
	}},
}
