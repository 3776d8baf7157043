package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/store/storetest"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) store.Store { return reopen(t, database(t), clock) })
}

// database makes an empty database with the newest schema.
func database(t testing.TB) string {
	t.Helper()
	return pgtest.Shared(t).From(t, "belay", func(url string) error {
		_, err := postgres.Migrate(context.Background(), url)
		return err
	})
}

// open opens a store; it is closed when the test ends.
func open(t testing.TB, url string, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reopened is a store that can close and open its database again.
type reopened struct {
	*postgres.Store
	url   string
	clock *storetest.Clock
}

func reopen(t testing.TB, url string, clock *storetest.Clock) *reopened {
	t.Helper()
	return &reopened{
		open(t, url, postgres.Options{
			Clock: clock.Now, Server: [16]byte{1}, Writers: 1, Readers: 1, LongLook: time.Hour,
		}), url, clock,
	}
}

// Reopen closes the store and opens its database again.
func (s *reopened) Reopen(t testing.TB) store.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return reopen(t, s.url, s.clock)
}
