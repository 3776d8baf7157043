package postgres

import (
	"fmt"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/google/go-cmp/cmp"
)

// migrated makes a database with an older schema, runs statements in it, and opens it, which
// migrates it to the newest schema.
func migrated(t *testing.T, version int64, statements string) (*Store, *conn) {
	t.Helper()
	url := older(t, version)
	c := dial(t, url)
	c.sql(t, statements)
	s, err := Open(t.Context(), url, Options{Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, c
}

// API keys of an older schema become objects with all their fields.
func TestKeysOfAnOlderSchemaAreObjects(t *testing.T) {
	t.Parallel()
	s, _ := migrated(t, 9, `INSERT INTO api_keys (id, name, scopes, hash, created_at, revoked_at) VALUES
		('01000000-0000-0000-0000-000000000000', 'ci "<é>"', '["read","admin"]', decode(repeat('00', 32), 'hex'), 5, NULL),
		('ab000000-0000-0000-0000-0000000000cd', 'old', '["worker"]', decode('ff' || repeat('00', 30) || '01', 'hex'), 3, 7)`)
	objects, err := store.All(t.Context(), s, machine.KeyObject)
	if err != nil {
		t.Fatal(err)
	}
	var keys []*machine.APIKey
	for _, o := range objects {
		k, err := machine.ReadAPIKey(o)
		if err != nil || o.Version != 1 || o.UpdatedAt != max(k.CreatedAt, k.RevokedAt) {
			t.Fatalf("%+v: %v", o, err)
		}
		keys = append(keys, k)
	}
	want := []*machine.APIKey{
		{ID: belay.KeyID{1}, Name: `ci "<é>"`, Scopes: []belay.Scope{belay.ScopeRead, belay.ScopeAdmin}, CreatedAt: 5},
		{ID: belay.KeyID{0xab, 15: 0xcd}, Name: "old", Scopes: []belay.Scope{belay.ScopeWorker},
			Hash: [32]byte{0xff, 31: 1}, CreatedAt: 3, RevokedAt: 7},
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A cost of whole tokens, as an older schema has it, stays the same. A server of an older version,
// which does not know the decimals, adds whole tokens to a cost with decimals, and loses none.
func TestOlderServersAddWholeTokens(t *testing.T) {
	t.Parallel()
	id := belay.ExecutionID{1}
	s, c := migrated(t, 19, `INSERT INTO executions
		(id, lane, created_at, seq, generation, input_gen, queue, workflow, state, cost) VALUES
		('01000000-0000-0000-0000-000000000000', 7, 1, 1, 1, 1, 'q', 'w', 1, 12)`)
	step := func(want string, add belay.Cost) {
		t.Helper()
		err := s.Commit(t.Context(), machine.Need{Executions: []belay.ExecutionID{id}},
			func(rows *machine.Rows) *machine.Changes {
				e := rows.Executions[0]
				if got := e.Cost.String(); got != want {
					t.Errorf("the cost is %s, want %s", got, want)
				}
				e.Cost = e.Cost.Add(add)
				return &machine.Changes{Executions: []*machine.Execution{e}}
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	step("12", 2_500)
	c.sql(t, "UPDATE executions SET cost = cost + 3")
	step("15.25", 7_500)
	c.sql(t, "UPDATE executions SET cost = cost + 1")
	step("17", 0)
}

// Executions that an older schema reserves for external owners stay external after the migration,
// and workers may claim the others. No execution waits at a gate.
func TestExternalExecutionsOfAnOlderSchemaStayExternal(t *testing.T) {
	t.Parallel()
	const columns = "INSERT INTO executions (id, lane, created_at, seq, generation, input_gen, queue, workflow, " +
		"state, gate, due_at, ready_at) VALUES "
	row := func(n, state int, rest string) string {
		return fmt.Sprintf("%s ('%02d000000-0000-0000-0000-000000000000', 7, 1, 1, 1, 1, 'q', 'w', %d, %s);", columns,
			n, state, rest)
	}
	s, c := migrated(t, 10, row(1, int(belay.Pending), "1, 5, NULL")+row(2, int(belay.Pending), "NULL, 5, 5")+
		row(3, int(belay.Waiting), "1, 5, NULL")+row(4, int(belay.Succeeded), "1, NULL, NULL"))
	need := machine.Need{
		Executions: []belay.ExecutionID{{1}, {2}, {3}, {4}}, Ready: []machine.ReadyQuery{{Lane: 7, Limit: 9}},
	}
	external := make(map[belay.ExecutionID]bool)
	err := s.Commit(t.Context(), need, func(rows *machine.Rows) *machine.Changes {
		for _, e := range rows.Executions {
			if external[e.ID] = e.External; e.Gate != "" {
				t.Errorf("%s is parked by %q", e.ID, e.Gate)
			}
		}
		if due := rows.Ready[0].Due; len(due) != 1 || due[0] != (belay.ExecutionID{2}) {
			t.Errorf("ready are %v, want the second alone", due)
		}
		return &machine.Changes{Mark: true}
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[belay.ExecutionID]bool{{1}: true, {2}: false, {3}: true, {4}: true}, external); diff != "" {
		t.Errorf("external (-want +got)\n%s", diff)
	}
	got := c.sql(t, "SELECT concat(to_regclass('lanes'), to_regclass('api_keys'), ' ', oldest) FROM meta")
	if got != " 25" { // the version of the newest migration that excludes all older servers
		t.Errorf("old tables that still exist, and the oldest version: %s", got)
	}
}
