package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// alone returns a database on a separate server, which the test may stop.
func alone(t *testing.T) (*pgtest.Server, string) {
	t.Helper()
	s := pgtest.Start(t, pgtest.Options{})
	url := s.Database(t)
	return s, url
}

func query(t *testing.T, s *pgtest.Server, sql string) string {
	t.Helper()
	out, err := s.Query("postgres", sql)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// until waits for a condition in the database.
func until(t *testing.T, s *pgtest.Server, sql string) {
	t.Helper()
	for query(t, s, sql) != "t" {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func there(t *testing.T, s *postgres.Store, n byte) bool {
	t.Helper()
	_, err := s.Read(t.Context(), store.Read{Execution: belay.ExecutionID{n}})
	if err != nil && belay.CodeOf(err) != belay.CodeNotFound {
		t.Fatal(err)
	}
	return err == nil
}

func submit(n byte) *machine.Submit {
	return &machine.Submit{Submission: belay.Submission{ID: belay.ExecutionID{n}, Workflow: "w"}}
}

// If the server process of a connection is terminated during COMMIT, the caller gets no wrong
// answer: it learns that the commit was written, or that its outcome is unknown (guarantee G3).
func TestCommitWhoseBackendIsTerminated(t *testing.T) {
	srv, url := alone(t)
	s := open(t, url, postgres.Options{Writers: 1})
	one := server{s, t}
	one.ok(submit(1))

	// The database writes the commit, and its answer then waits for a standby that does not exist.
	hang := func(n byte) chan error {
		query(t, srv, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
		query(t, srv, "SELECT pg_reload_conf()")
		// until all processes have the setting
		until(t, srv, "SELECT current_setting('synchronous_standby_names') = 'nobody'")
		// After a checkpoint the checkpointer process has the setting too, and from now on commits
		// wait.
		query(t, srv, "CHECKPOINT")
		done := make(chan error, 1)
		go func() {
			_, err := one.during(nil, submit(n))
			done <- err
		}()
		until(t, srv, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND "+
			"application_name = 'belay'")
		return done
	}
	terminate := "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND " +
		"application_name = 'belay'"
	answerAgain := func() {
		query(t, srv, "ALTER SYSTEM RESET synchronous_standby_names")
		query(t, srv, "SELECT pg_reload_conf()")
	}

	done := hang(2)
	query(t, srv, terminate)
	if err := <-done; belay.CodeOf(err) != belay.CodeUnavailable ||
		!strings.Contains(err.Error(), "may have been written or not") {
		t.Errorf("while no commit is answered: %v", err)
	}
	answerAgain()
	if !there(t, s, 2) {
		t.Error("the execution of the written commit is not there")
	}

	done = hang(3)
	query(t, srv, terminate)
	answerAgain()
	if err := <-done; err != nil || !there(t, s, 3) {
		t.Errorf("when commits are answered again: %v", err)
	}
}

// A transaction whose connection ends before COMMIT is repeated. It may be decided twice but is
// written once.
func TestATransactionIsRepeatedOnANewConnection(t *testing.T) {
	srv, url := alone(t)
	s := open(t, url, postgres.Options{Writers: 1})
	one := server{s, t}
	one.ok(submit(1))
	terminate := func() {
		query(t, srv, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'belay'")
	}
	decided := 0
	_, err := one.during(func(*machine.Rows) {
		decided++
		terminate()
	}, submit(2))
	if err != nil || !there(t, s, 2) || decided != 1 {
		t.Errorf("terminated while it was decided: %v", err)
	}
	terminate() // ends the idle connections in the pools
	if _, err := one.during(nil, submit(3)); err != nil || !there(t, s, 3) {
		t.Errorf("terminated while it was idle: %v", err)
	}
	terminate()
	if !there(t, s, 1) {
		t.Error("reading after the connections ended")
	}
}

// While the database does not run, every call fails with CodeUnavailable. Nothing is lost, and
// calls succeed when the database runs again.
func TestTheStoreRecoversWhenTheDatabaseIsBack(t *testing.T) {
	for name, end := range map[string]func(*pgtest.Server) error{"stopped": (*pgtest.Server).Stop,
		"killed": (*pgtest.Server).Kill} {
		t.Run(name, func(t *testing.T) {
			srv, url := alone(t)
			s := open(t, url, postgres.Options{})
			one := server{s, t}
			one.ok(submit(1))
			if err := end(srv); err != nil {
				t.Fatal(err)
			}
			_, err := one.during(nil, submit(2))
			_, read := s.Read(t.Context(), store.Read{Execution: belay.ExecutionID{1}})
			_, due := s.Due(t.Context(), 1)
			for what, err := range map[string]error{"commit": err, "read": read, "due": due} {
				if belay.CodeOf(err) != belay.CodeUnavailable {
					t.Errorf("%s while it is away: %v", what, err)
				}
			}
			if err := srv.Resume(); err != nil {
				t.Fatal(err)
			}
			if _, err := one.during(nil, submit(3)); err != nil || !there(t, s, 1) || there(t, s, 2) ||
				!there(t, s, 3) {
				t.Errorf("when it is back: %v", err)
			}
		})
	}
}

// If a server stops in the middle of a batch, the database ends the batch's transaction after a
// while, and so releases its locks.
func TestLocksOfAStoppedServerEnd(t *testing.T) {
	url := database(t)
	a, b := server{
		open(t, url, postgres.Options{Patience: 3 * time.Second}), t,
	}, server{open(t, url, postgres.Options{}), t}
	id := a.submit(1)
	deliver := &machine.Deliver{SignalRequest: belay.SignalRequest{Execution: id, Name: "s"}}
	began := time.Now()
	if _, err := a.during(func(*machine.Rows) {
		if _, err := b.during(nil, deliver); err != nil {
			t.Errorf("the other server: %v", err)
		}
	}, deliver); err != nil {
		t.Errorf("the one that went on: %v", err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the rows were locked for %s", took)
	}
	if got := a.row(id).SignalSeq; got != 3 {
		t.Errorf("the newest signal has seq %d, want 3: both once", got)
	}
}

// The epoch (the number above which all new tokens are) grows if the store connects to another
// database than before: a copy that was restored into another server, or a standby that was
// promoted (guarantee G1).
func TestTheEpochGrowsWithAnotherDatabase(t *testing.T) {
	url := database(t)
	epoch := func(s *postgres.Store) (epoch belay.Token) {
		err := s.Commit(t.Context(), machine.Need{}, func(rows *machine.Rows) *machine.Changes {
			epoch = rows.Epoch
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return epoch
	}
	s := open(t, url, postgres.Options{})
	if got := epoch(s); got != 0 {
		t.Errorf("a new database has epoch %d", got)
	}
	if got := epoch(open(t, url, postgres.Options{})); got != 0 {
		t.Errorf("opened again it has epoch %d", got)
	}
	last := belay.Token(0)
	for _, sql := range []string{"UPDATE meta SET timeline = '00000007'", "UPDATE meta SET system = '7'"} {
		if _, err := pgtest.Shared(t).Query(name(url), sql); err != nil {
			t.Fatal(err)
		}
		got := epoch(open(t, url, postgres.Options{}))
		if least := machine.NextEpoch(0, machine.At(time.Now().Add(-time.Hour)), 0); got < least || got <= last {
			t.Errorf("after %s: epoch %d after %d, want %d at least", sql, got, last, least)
		}
		last = got
	}
	if got, err := s.RaiseEpoch(t.Context()); err != nil || got <= last || epoch(s) != got {
		t.Errorf("raised from %d to %d (%v)", last, got, err)
	}
}

// name returns the name of the database in a URL.
func name(url string) string {
	path, _, _ := strings.Cut(url, "?")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// No error shows the password of the URL.
func TestErrorsDoNotShowThePassword(t *testing.T) {
	const secret = "hunter2secret"
	for _, url := range []string{
		"postgres://me:" + secret + "@127.0.0.1:1/x", "postgres://me:" + secret + "@[::1/x",
		"host=127.0.0.1 port=1 password=" + secret + " x",
		"postgres://me:" + secret + "@127.0.0.1:1/x?sslmode=maybe", "postgres://me:" + secret + "@127.0.0.1:notaport/x",
	} {
		_, err := postgres.Open(t.Context(), url, postgres.Options{})
		_, pending := postgres.Pending(t.Context(), url)
		for _, err := range []error{err, pending} {
			if err == nil {
				t.Errorf("%s was opened", url)
				continue
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if text := fmt.Sprintf("%v %+v", e, e); strings.Contains(text, secret) {
					t.Errorf("the error shows the password: %s", strings.ReplaceAll(text, secret, "…"))
				}
			}
		}
	}
}

// Hints (messages) about the commits of a server reach the other servers and not that server. A
// listener whose connection was cut reports that hints were lost.
func TestHintsReachOtherServers(t *testing.T) {
	srv, url := alone(t)
	a, b := server{open(t, url, postgres.Options{}), t}, server{open(t, url, postgres.Options{}), t}
	ctx, cancel := context.WithCancel(t.Context())
	own, heard := make(chan store.Hint, 100), make(chan store.Hint, 100)
	ended := make(chan error, 2)
	go func() { ended <- a.Listen(ctx, func(h store.Hint) { own <- h }) }()
	go func() { ended <- b.Listen(ctx, func(h store.Hint) { heard <- h }) }()
	for _, c := range []chan store.Hint{own, heard} {
		if h := <-c; !h.Lost {
			t.Errorf("the first hint is %+v", h)
		}
	}
	a.ok(submit(1))
	h := <-heard
	if len(h.Lanes) != 1 || h.Lanes[0].Lane != claim(belay.WorkerID{}, 1, 1).Lanes[0].ID || h.Lanes[0].At == 0 ||
		!h.Changed.Has(belay.ExecutionID{1}) {
		t.Errorf("the hint of a submission is %+v", h)
	}
	query(t, srv, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'belay hints'")
	for h := range heard {
		if h.Lost {
			break
		}
	}
	for h := range own {
		if h.Lost {
			break
		}
	}
	b.ok(submit(2))
	for h := range own {
		if h.Changed.Has(belay.ExecutionID{2}) {
			break
		}
		if h.Changed.Has(belay.ExecutionID{1}) {
			t.Error("a server hears of its own commit")
		}
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("listening ended: %v", err)
		}
	}
}

// A server that ends may not have sent the hints of its last commits. The other servers notice that
// its connection has disappeared, and report twice that hints were lost: at once, and again for a
// commit that the database still carried out.
func TestTheEndOfAServerIsALossOfHints(t *testing.T) {
	srv, url := alone(t)
	a, b := open(t, url, postgres.Options{}), open(t, url, postgres.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ends, end := context.WithCancel(t.Context())
	heard, there := make(chan store.Hint, 100), make(chan store.Hint, 100)
	ended := make(chan error, 2)
	go func() { ended <- a.Listen(ctx, func(h store.Hint) { heard <- h }) }()
	if h := <-heard; !h.Lost {
		t.Errorf("the first hint is %+v", h)
	}
	go func() { ended <- b.Listen(ends, func(h store.Hint) { there <- h }) }()
	<-there
	// Wait until the first server has looked at the listening connections, so that it knows the
	// second server.
	until(t, srv, "SELECT count(*) > 0 FROM pg_stat_activity a, pg_stat_activity b WHERE a.query LIKE 'SELECT pid%' "+
		"AND a.application_name = 'belay hints' AND b.application_name = 'belay hints' AND a.state = 'idle' AND a.backend_start < b.backend_start AND a.query_start > b.backend_start")
	if len(heard) > 0 {
		t.Errorf("while both servers listen, one hears %+v", <-heard)
	}
	end()
	for n := range 2 {
		select {
		case h := <-heard:
			if !h.Lost {
				t.Errorf("after the end of the other server, hint %d is %+v", n, h)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("after the end of the other server, the server heard of a loss %d times", n)
		}
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("listening ended: %v", err)
		}
	}
}
