package embedded

import (
	"context"

	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/postgres"
)

// committers is the number of transactions that an engine writes at a time: while the database
// commits one transaction, the engine prepares the next. More than two transactions at a time are
// slower.
const committers = 2

// openPostgres opens a database, which any number of engines may share, so it needs no lock and no
// directory.
func openPostgres(ctx context.Context, url string, set settings) (*Backend, error) {
	set.prove()
	set.engine.Committers, set.engine.Pulse = committers, true
	s, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return nil, err
	}
	return &Backend{Engine: engine.New(s, set.engine), store: s, ballast: make([]byte, ballast)}, nil
}

// readPostgres opens a database to read it beside its servers. All of its transactions are read-only,
// and no migration runs.
func readPostgres(ctx context.Context, url string) (*Reader, error) {
	s, err := postgres.Open(ctx, url, postgres.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &Reader{Reader: engine.NewReader(s, readerPoll), store: s}, nil
}
