package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"
)

// at makes a database with the schema of an older version, and runs statements in it.
func at(t *testing.T, path string, version int64, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.ExecContext(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// The sizes of existing logs are summed up when the schema gets the table for the sums.
func TestLogsOfAnOlderSchemaGetSums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	at(t, path, 1,
		`INSERT INTO blobs (execution, name, n, token, hash, size, at) VALUES (x'01000000000000000000000000000000', 'log', 0, 1, zeroblob(32), 5, 1)`,
		`INSERT INTO blobs (execution, name, n, token, hash, size, at) VALUES (x'01000000000000000000000000000000', 'log', 1, 2, zeroblob(32), 7, 1)`,
	)
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ref := machine.SumRef{Execution: belay.ExecutionID{1}, Name: "log"}
	err = s.Commit(t.Context(), machine.Need{Sums: []machine.SumRef{ref}}, func(rows *machine.Rows) *machine.Changes {
		if len(rows.Sums) != 1 || rows.Sums[0].Bytes != 12 || rows.Sums[0].Token != 2 {
			t.Errorf("sums %+v", rows.Sums)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Executions that an older schema reserves for external owners stay external after the migration,
// and workers may claim the others. No execution waits at a gate.
func TestExternalExecutionsOfAnOlderSchemaStayExternal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	row := func(n, state int, rest string) string {
		return fmt.Sprintf("INSERT INTO executions (id, lane, created_at, seq, queue, workflow, state, gate, "+
			"due_at, ready_at) "+
			"VALUES (x'%02d000000000000000000000000000000', 7, 1, 1, 'q', 'w', %d, %s)", n, state, rest)
	}
	at(t, path, 10, row(1, int(belay.Pending), "1, 5, NULL"), row(2, int(belay.Pending), "0, 5, 5"),
		row(3, int(belay.Waiting), "1, 5, NULL"), row(4, int(belay.Succeeded), "1, NULL, NULL"))
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	need := machine.Need{
		Executions: []belay.ExecutionID{{1}, {2}, {3}, {4}}, Ready: []machine.ReadyQuery{{Lane: 7, Limit: 9}},
	}
	external := make(map[belay.ExecutionID]bool)
	err = s.Commit(t.Context(), need, func(rows *machine.Rows) *machine.Changes {
		for _, e := range rows.Executions {
			if external[e.ID] = e.External; e.Gate != "" {
				t.Errorf("%s is parked by %q", e.ID, e.Gate)
			}
		}
		if due := rows.Ready[0].Due; len(due) != 1 || due[0] != (belay.ExecutionID{2}) {
			t.Errorf("ready are %v, want the second alone", due)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[belay.ExecutionID]bool{{1}: true, {2}: false, {3}: true, {4}: true}, external); diff != "" {
		t.Errorf("external (-want +got)\n%s", diff)
	}
}

// API keys of an older schema become objects with all their fields.
func TestKeysOfAnOlderSchemaAreObjects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belay.db")
	at(t, path, 9,
		`INSERT INTO api_keys VALUES (x'01000000000000000000000000000000', 'ci "<é>"', '["read","admin"]', zeroblob(32), 5, NULL)`,
		`INSERT INTO api_keys VALUES (x'ab0000000000000000000000000000cd', 'old', '["worker"]', x'ff00000000000000000000000000000000000000000000000000000000000001', 3, 7)`,
	)
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
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
