package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// On a writer's connection the database acknowledges a commit only after the commit is on disk, even
// if the database's settings make it acknowledge other commits earlier (guarantee G3).
func TestAcknowledgedCommitsAreWritten(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Database(t)
	path, _, _ := strings.Cut(url, "?")
	name := path[strings.LastIndexByte(path, '/')+1:]
	if _, err := server.Query(name, "ALTER DATABASE "+name+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	if said, err := server.Query(name, "SHOW synchronous_commit"); err != nil || said != "off" {
		t.Fatalf("the database itself says %q, %v", said, err)
	}
	s, err := Open(t.Context(), url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.writers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.writers <- c }()
	var said string
	err = s.transact(t.Context(), c, func(ctx context.Context) error {
		p := c.pipe()
		p.add("SHOW synchronous_commit", func(r columns) error {
			said = r.text(0)
			return nil
		})
		return p.run(ctx)
	})
	if err != nil || said != "on" {
		t.Errorf("a writer commits with synchronous_commit %q, %v", said, err)
	}
}

// After a write to a connection has failed, the store sends nothing more on it, because another
// goroutine writes to the connection in order to close it.
func TestNothingIsSentOnAConnectionThatIsBeingClosed(t *testing.T) {
	c := dial(t, pgtest.Shared(t).Database(t))
	p := c.pipe()
	p.stream(t.Context())
	if err := c.pg.Conn().Close(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		p.add("SELECT $1::text", nil).params = [][]byte{make([]byte, 2*burst)}
	}
	if err := p.run(t.Context()); err == nil || !c.pg.IsClosed() {
		t.Errorf("a statement on a closed connection got %v", err)
	}
	if p.sent > 1 {
		t.Errorf("%d statements were sent after the connection had ended", p.sent-1)
	}
}
