package test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// database is an engine on a PostgreSQL database, in this process.
type database struct {
	t *testing.T
	*embedded.Backend
}

func openDatabase(t *testing.T, url string) *database {
	t.Helper()
	b, err := embedded.Open(t.Context(), url, embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return &database{t, b}
}

// own claims an execution in the role of an owner that is not a worker.
func (d *database) own(id belay.ExecutionID) belay.Lock {
	d.t.Helper()
	l, err := d.Lock(d.t.Context(), belay.LockRequest{
		ID: belay.WorkerID(embedded.NewID()), Execution: id, Owner: "test", Reopen: true,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return l
}

// lose reports that the worker of a lease has died, and waits until the engine has taken the
// execution back.
func (d *database) lose(l belay.Lease) {
	d.t.Helper()
	if err := d.Bury(d.t.Context(), l.Worker, "killed"); err != nil {
		d.t.Fatal(err)
	}
	until(d.t, "the execution is reclaimed", func() bool {
		x, err := d.Execution(d.t.Context(), l.Execution)
		return err == nil && x.State != belay.Running
	})
}

func (d *database) close() {
	d.t.Helper()
	if err := d.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// Rule: an operator can back up and restore PostgreSQL with PostgreSQL's own tools, as
// docs/operations.md describes. The result is the same as for a data directory: every write that
// was acknowledged before the dump is kept, the engine gives out no token twice, and no lease from
// before the dump is valid any more (guarantees G1, G2 and G3).
func TestPostgresIsRestoredWithItsOwnTools(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	p := newPlace(t)
	url := s.Database(t)
	p.belay("migrate", "--store", url).want(0).saying("migrated: 00001")
	p.belay("migrate", "--store", url, "--dry-run").want(0).saying("up to date")
	d := openDatabase(t, url)
	out, err := d.Submit(t.Context(), belay.Submission{Workflow: "w", Input: []byte(`{"n":1}`)})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	id := out[0].ID
	old := d.own(id)
	dump := p.path("belay.dump")
	tool(t, s.Binary("pg_dump"), "--format=custom", "--file="+dump, "--dbname="+url)
	d.lose(old.Lease)
	highest := old.Lease.Token
	for range 2 { // the engine gives out these leases after the dump
		l := d.own(id)
		highest = max(highest, l.Lease.Token)
		d.lose(l.Lease)
	}
	d.close()

	fresh := s.Database(t)
	tool(t, s.Binary("pg_restore"), "--exit-on-error", "--single-transaction", "--no-owner", "--dbname="+fresh, dump)
	// the dump contains a recent mark of life (a running server writes the time to the store at
	// short intervals). Therefore restore assumes that the server which wrote it may still be
	// running.
	p.belay("restore", "--epoch", "--store",
		fresh).want(belay.CodeConflict.Exit()).saying("a server left its mark of life")
	r := p.belay("restore", "--epoch", "--force", "--store", fresh).want(0)
	if !strings.Contains(r.out, "ended 1 session") {
		t.Errorf("the session from before the dump was not ended\n%s", r)
	}
	d = openDatabase(t, fresh)
	if x, err := d.Execution(t.Context(), id); err != nil || string(x.Input) != `{"n":1}` {
		t.Errorf("the acknowledged execution: %+v, %v", x, err)
	}
	if _, err := d.Renew(t.Context(), old.Lease); belay.CodeOf(err) != belay.CodeLeaseLost {
		t.Errorf("the lease from before the dump: %v", err)
	}
	until(t, "the execution is reclaimed", func() bool {
		x, err := d.Execution(t.Context(), id)
		return err == nil && x.State != belay.Running
	})
	if l := d.own(id); l.Lease.Token <= highest {
		t.Errorf("token %d after %d", l.Lease.Token, highest)
	}
	wellFormed(t, events(t, d, id))
}

// tool runs a program of PostgreSQL.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
