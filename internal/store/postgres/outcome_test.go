package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// After a crash, a database may use the number of a transaction again if that transaction left no
// trace in the log. So after a crash the store does not look up the outcome of an earlier
// transaction: it could take the commit of another transaction for its own commit, which was lost
// (guarantee G3). If only the connection has ended, the store looks up the outcome.
func TestNoOutcomeIsAskedForAcrossACrash(t *testing.T) {
	// With these settings no process of the database writes the next transaction number to the log by
	// itself. If one did so before the crash, the database would not use the number again. By default the WAL writer
	// writes the end of the transaction, with its number, after 200 ms.
	server := pgtest.Start(t, pgtest.Options{Settings: map[string]string{
		"wal_level": "minimal", "max_wal_senders": "0", "autovacuum": "off", "wal_writer_delay": "10s",
	}})
	url := server.Database(t)
	path, _, _ := strings.Cut(url, "?")
	name := path[strings.LastIndexByte(path, '/')+1:]
	query := func(sql string) string {
		t.Helper()
		out, err := server.Query(name, sql)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	s, err := Open(t.Context(), url, Options{Writers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.writers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.writers <- c }()
	begun := func() (u *unanswered) {
		t.Helper()
		err := s.transact(t.Context(), c, func(ctx context.Context) error {
			p := c.pipe()
			p.add("BEGIN", nil)
			p.add("SELECT pg_current_xact_id()::text", func(r columns) error {
				u = &unanswered{xid: r.text(0), of: c.identity}
				return nil
			})
			return p.run(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}

	u := begun()
	query("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'belay'")
	if committed, known := s.outcome(t.Context(), c, u); committed || !known {
		t.Errorf("after its connection was ended: committed %t, known %t", committed, known)
	}

	crash := func(how string) {
		t.Helper()
		if how == "the server is killed" {
			if err := errors.Join(server.Kill(), server.Resume()); err != nil {
				t.Fatal(err)
			}
			return
		}
		const writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'"
		pid, err := strconv.Atoi(query(writer))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL) // all processes of the server end with it, and the server recovers
		}
		if err != nil {
			t.Fatal(err)
		}
		// A query that was answered just before the end of its connection returns the old id, together with a
		// warning.
		for now := pid; now == pid || now == 0; {
			out, _ := server.Query(name, writer)
			now, _ = strconv.Atoi(out)
		}
	}
	for _, how := range []string{"the server is killed", "one of its processes is killed"} {
		status := ""
		for try := 0; status != "committed" && try < 5; try++ { // another connection may take the number
			query("CHECKPOINT")
			u = begun()
			crash(how)
			for query("SELECT pg_current_xact_id() >= '"+u.xid+"'::xid8") != "t" {
			}
			status = query("SELECT pg_xact_status('" + u.xid + "'::xid8)")
			if committed, known := s.outcome(t.Context(), c, u); committed || known {
				t.Errorf("%s: outcome of the transaction before the crash: committed %t, known %t", how, committed,
					known)
			}
		}
		if status != "committed" {
			t.Errorf("%s: the number of the transaction is not given out again: it is %q", how, status)
		}
	}
}
