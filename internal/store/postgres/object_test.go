package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// before is a connection of a server that knows schema 9: it keeps keys in api_keys, by
// these statements, which it has prepared before the migration.
type before struct {
	t *testing.T
	*conn
}

const (
	columnsBefore = "id, name, scopes, hash, created_at, revoked_at"
	listBefore    = "SELECT " + columnsBefore + " FROM api_keys ORDER BY created_at, id"
	lockBefore    = "SELECT k.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (SELECT " + columnsBefore + " FROM api_keys WHERE id = u.id FOR NO KEY UPDATE) k"
	insertBefore  = "INSERT INTO api_keys (" + columnsBefore + ") SELECT unnest($1::uuid[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bytea[]), unnest($5::bigint[]), unnest($6::bigint[])"
	revokeBefore  = "UPDATE api_keys k SET revoked_at = u.at FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::bigint[]) AS at) u WHERE k.id = u.id"
)

func (b before) run(do func(*pipe)) error {
	p := b.pipe()
	do(p)
	return p.run(b.t.Context())
}

func (b before) create(n byte, name string) error {
	return b.run(func(p *pipe) {
		s := p.add(insertBefore, nil)
		idList(s, []belay.KeyID{{n}})
		texts(s, []string{name}, func(s string) string { return s })
		texts(s, []string{`["read","admin"]`}, func(s string) string { return s })
		hashes(s, []*[32]byte{{n, 31: 9}}, func(h *[32]byte) *[32]byte { return h })
		ints(s, int8s, []int64{1000 + int64(n)}, func(v int64) int64 { return v })
		ints(s, int8OrNull, []int64{0}, func(v int64) int64 { return v })
	})
}

func (b before) revoke(n byte, at int64) error {
	return b.run(func(p *pipe) {
		s := change(p, counted(revokeBefore, 2), "keys", 1)
		idList(s, []belay.KeyID{{n}})
		ints(s, int8OrNull, []int64{at}, func(v int64) int64 { return v })
		s.int(1)
	})
}

func (b before) keys(text string, ids ...belay.KeyID) (all []string) {
	b.t.Helper()
	err := b.run(func(p *pipe) {
		s := p.add(text, func(r columns) error {
			all = append(all, fmt.Sprint(belay.KeyID(r.id(0)), r.text(1), strings.ReplaceAll(r.text(2), " ", ""), r.hash(3), r.int(4), r.int(5)))
			return nil
		})
		if len(ids) > 0 {
			idList(s, ids)
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// While servers that know schema 9 and servers that know schema 10 work side by side, both
// see the keys that either has made or revoked.
func TestKeysAreSharedWithServersBefore(t *testing.T) {
	t.Parallel()
	url := older(t, 9)
	old, beside := before{t, dial(t, url)}, dial(t, url)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(old.create(1, `of old "<é>"`))
	must(old.create(2, "revoked"))
	must(old.revoke(2, 2000))
	was := old.keys(listBefore)
	if _, err := Migrate(context.Background(), url); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), url, Options{Writers: 1, Readers: 1})
	must(err)
	defer func() { _ = s.Close() }()
	now := func() (all []string) {
		t.Helper()
		objects, err := store.All(t.Context(), s, machine.KeyObject)
		must(err)
		for _, o := range objects {
			k, err := machine.ReadAPIKey(o)
			must(err)
			scopes := strings.ReplaceAll(fmt.Sprintf("%q", k.Scopes), " ", ",")
			all = append(all, fmt.Sprint(k.ID, k.Name, scopes, k.Hash, int64(k.CreatedAt), int64(k.RevokedAt)))
		}
		slices.Sort(all)
		return all
	}
	same := func(what string, keys int) {
		t.Helper()
		at := old.keys(listBefore)
		slices.Sort(at)
		if got := now(); len(at) != keys || !slices.Equal(at, got) {
			t.Errorf("%s: the server before has %q, the one after %q", what, at, got)
		}
	}
	do := func(c machine.Command) machine.Reply {
		t.Helper()
		var r []machine.Reply
		must(s.Commit(t.Context(), machine.NeedOf([]machine.Command{c}), func(rows *machine.Rows) (changes *machine.Changes) {
			changes, r = machine.Fold(rows, []machine.Command{c})
			return changes
		}))
		return r[0]
	}
	if !slices.Equal(was, old.keys(listBefore)) {
		t.Errorf("%q before the migration, %q after it", was, old.keys(listBefore))
	}
	same("after the migration", 2)
	must(old.create(3, "made by the server before"))
	same("made by the server before", 3)
	must(old.revoke(1, 3000))
	same("revoked by the server before", 3)
	objects, err := store.All(t.Context(), s, machine.KeyObject)
	if must(err); objects[0].Version != 2 || objects[0].UpdatedAt != 3000 || objects[2].Version != 1 || objects[2].UpdatedAt != 1003 {
		t.Errorf("after both: %+v and %+v", objects[0], objects[2])
	}
	spec := belay.KeySpec{Name: `new "<é>"`, Scopes: []belay.Scope{belay.ScopeRead}}
	if r := do(&machine.CreateKey{KeySpec: spec, ID: belay.KeyID{4}, Hash: [32]byte{4}}); r.Err != nil {
		t.Error(r.Err)
	}
	same("made after", 4)
	if r := do(&machine.RevokeKey{Revocation: belay.Revocation{Key: belay.KeyID{3}}}); r.Err != nil || r.Replayed {
		t.Errorf("%+v", r)
	}
	same("revoked after", 4)
	if err := old.revoke(9, 4000); belay.CodeOf(err) != belay.CodeInternal {
		t.Errorf("a key that is not there is revoked: %v", err)
	}
	if err := old.create(4, "again"); !repeatable(err) {
		t.Errorf("a key is made twice: %v", err)
	}
	old.sql(t, "BEGIN")
	if got := old.keys(lockBefore, belay.KeyID{2}, belay.KeyID{9}); len(got) != 1 || got[0] != was[1] {
		t.Errorf("locked %q, want %q", got, was[1:])
	}
	if n := beside.sql(t, "SELECT count(*) FROM (SELECT 1 FROM objects FOR NO KEY UPDATE SKIP LOCKED) o"); n != "3" {
		t.Errorf("%s of 4 keys can be written while the server before holds one", n)
	}
	old.sql(t, "ROLLBACK")
}
