package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

func names(steps []Migration) string {
	var all []string
	for _, m := range steps {
		all = append(all, m.Name)
	}
	return strings.Join(all, " ")
}

// Pending migrations are listed without a change, run once, and then not listed any more.
func TestPendingMigrations(t *testing.T) {
	dir := t.TempDir()
	path, fresh, newer := filepath.Join(dir, "old.db"), filepath.Join(dir, "new.db"), filepath.Join(dir, "newer.db")
	all, err := known()
	if err != nil {
		t.Fatal(err)
	}
	at(t, path, 1)
	at(t, newer, 1, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	for _, look := range []func() ([]Migration, error){
		func() ([]Migration, error) { return Pending(t.Context(), path) },
		func() ([]Migration, error) { return Pending(t.Context(), path) },
		func() ([]Migration, error) { return Migrate(t.Context(), path) },
	} {
		got, err := look()
		if err != nil || names(got) != names(all[1:]) || !strings.Contains(got[0].SQL, "CREATE TABLE api_keys") {
			t.Errorf("%s: %v", names(got), err)
		}
	}
	if got, err := Pending(t.Context(), fresh); err != nil || names(got) != names(all) {
		t.Errorf("of nothing: %s, %v", names(got), err)
	}
	if got, err := Migrate(t.Context(), fresh); err != nil || names(got) != names(all) {
		t.Errorf("from nothing: %s, %v", names(got), err)
	}
	for _, p := range []string{path, fresh} {
		if got, err := Migrate(t.Context(), p); err != nil || len(got) > 0 {
			t.Errorf("%s once more: %s, %v", p, names(got), err)
		}
	}
	for _, look := range []func() ([]Migration, error){
		func() ([]Migration, error) { return Pending(t.Context(), newer) },
		func() ([]Migration, error) { return Migrate(t.Context(), newer) },
	} {
		if _, err := look(); belay.CodeOf(err) != belay.CodeInternal || !strings.Contains(err.Error(), "newer Belay") {
			t.Errorf("a newer one: %v", err)
		}
	}
}

// A backup from before an upgrade can be made, and restored, with the new version.
func TestABackupOfAnOlderSchema(t *testing.T) {
	dir := t.TempDir()
	path, backup, restored := filepath.Join(dir, "old.db"), filepath.Join(dir, "b.db"), filepath.Join(dir, "r.db")
	at(t, path, 1)
	if s, err := Backup(t.Context(), path, backup, nil); err != nil || s.Schema != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if s, err := Restore(t.Context(), backup, restored, 0, time.Now(), nil); err != nil || s.Schema != 1 ||
		s.Epoch == 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	s, err := Open(t.Context(), restored, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
