package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/sqlite"
	"github.com/belaydev/belay/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) store.Store {
		return open(t, filepath.Join(t.TempDir(), "belay.db"), clock)
	})
}

// reopened is a store that can close and open its file again.
type reopened struct {
	*sqlite.Store
	path  string
	clock *storetest.Clock
}

func open(t testing.TB, path string, clock *storetest.Clock) *reopened {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &reopened{s, path, clock}
}

// Reopen closes the store and opens its file again.
func (s *reopened) Reopen(t testing.TB) store.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.path, s.clock)
}
