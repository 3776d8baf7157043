package sdktest_test

import (
	"context"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/belaydev/belay/internal/testkit/sdktest"
)

// onPostgres opens an engine on a database of its own. The database's clock is the virtual time of
// the bubble. Virtual time stands still while a goroutine waits for a socket, so calls to the
// database take no virtual time. A connection that listens for notifications would wait forever;
// therefore the engine gets a store that cannot listen.
func onPostgres(t *testing.T, srv *pgtest.Server) *onDatabase {
	t.Helper()
	url := srv.From(t, "sdktest", func(url string) error {
		_, err := postgres.Migrate(context.Background(), url)
		return err
	})
	s, err := postgres.Open(t.Context(), url, postgres.Options{Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return &onDatabase{engine.New(struct{ store.Store }{s}, engine.Options{Log: quiet}), s}
}

// onDatabase is an engine whose Close also closes its store.
type onDatabase struct {
	*engine.Engine
	store store.Store
}

func (b *onDatabase) Close() error {
	if err := b.Engine.Close(); err != nil {
		return err
	}
	return b.store.Close()
}

// The engine with the store in PostgreSQL passes the suite.
func TestPostgres(t *testing.T) {
	srv := pgtest.Start(t, pgtest.Options{NoSync: true})
	sdktest.Run(t, func(t *testing.T) belay.Backend { return onPostgres(t, srv) }, sdktest.Part...)
}
