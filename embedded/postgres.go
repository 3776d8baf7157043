package embedded

import (
	"context"

	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/postgres"
)

// committers is how many transactions an engine writes at a time: while one waits
// for the database, the other is made ready. More are slower.
const committers = 2

// openPostgres opens a database that any number of engines share: there is no
// lock to take and no directory to make.
func openPostgres(ctx context.Context, url string, set settings) (*Backend, error) {
	set.prove()
	set.engine.Committers, set.engine.Pulse = committers, true
	s, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return nil, err
	}
	return &Backend{Engine: engine.New(s, set.engine), store: s, room: make([]byte, room)}, nil
}
