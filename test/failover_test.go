package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// standby is a PostgreSQL server that replicates another server, the primary, asynchronously. A
// shell starts the standby, and stops it when this test process ends.
type standby struct {
	t       *testing.T
	primary *pgtest.Server
	dir     string
	port    string
	as      *syscall.SysProcAttr
	shell   *exec.Cmd
	release func()
}

func newStandby(t *testing.T, primary *pgtest.Server) *standby {
	t.Helper()
	dir, err := os.MkdirTemp("", "standby-")
	if err != nil {
		t.Fatal(err)
	}
	s := &standby{t: t, primary: primary, dir: dir, as: &syscall.SysProcAttr{Setpgid: true}}
	t.Cleanup(func() {
		s.stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	_, s.port, _ = strings.Cut(freeAddress(t), ":")
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	copying := exec.Command(primary.Binary("pg_basebackup"), "--pgdata=data", "--write-recovery-conf",
		"--checkpoint=fast",
		"--no-sync", "--dbname="+primary.TCP("postgres"))
	copying.Dir, copying.SysProcAttr = dir, s.as
	if out, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	conf, err := os.OpenFile(filepath.Join(dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conf, "\nport = %s\nunix_socket_directories = '%s'\n", s.port, dir)
	if err := conf.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// run starts the standby and waits until it answers.
func (s *standby) run() {
	s.t.Helper()
	s.shell = exec.Command("sh", "-c", `"$1" -D data >log 2>&1 </dev/null & pid=$!; read -r stop; kill -s INT $pid; wait $pid`, "standby", s.primary.Binary("postgres"))
	s.shell.Dir, s.shell.SysProcAttr = s.dir, s.as
	in, err := s.shell.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.shell.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.release = func() {
		_ = in.Close()
		_ = s.shell.Wait()
	}
	until(s.t, "the standby answers", func() bool { return s.ask("SELECT 1") == "1" })
}

func (s *standby) stop() {
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// ask returns the standby's answer to a query, or the text of the error.
func (s *standby) ask(sql string) string {
	out, _ := exec.Command(s.primary.Binary("psql"), "-X", "-q", "-A", "-t", "-c", sql, "-h", s.dir, "-p", s.port, "-U",
		"postgres", "postgres").CombinedOutput()
	return strings.TrimSpace(string(out))
}

// caughtUp waits until the standby has replayed everything that the primary has written.
func (s *standby) caughtUp() {
	s.t.Helper()
	at, err := s.primary.Query("postgres", "SELECT pg_current_wal_flush_lsn()")
	if err != nil {
		s.t.Fatal(err)
	}
	until(s.t, "the standby has caught up", func() bool {
		return s.ask("SELECT pg_last_wal_replay_lsn() >= '"+at+"'") == "t"
	})
}

// Rule: if an operator promotes two standbys of one primary, one after the other, the servers give
// out greater tokens on the second standby than on the first (guarantee G1).
func TestSiblingStandbysTakeOver(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, pgtest.Options{})
	database := primary.Database(t)
	name := database[strings.Index(database, "///")+3 : strings.IndexByte(database, '?')]
	first, second := newStandby(t, primary), newStandby(t, primary)
	first.run()
	second.run()
	d := openDatabase(t, fmt.Sprintf("postgres://postgres@%s,127.0.0.1:%s,127.0.0.1:%s/%s?sslmode=disable&target_session_attrs=read-write&connect_timeout=2",
		primary.Address(), first.port, second.port, name))
	out, err := d.Submit(t.Context(), belay.Submission{Workflow: "w"})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	id := out[0].ID
	d.lose(d.own(id).Lease)
	first.caughtUp()
	second.caughtUp()
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	highest := belay.Token(0)
	for _, s := range []*standby{first, second} {
		if got := s.ask("SELECT pg_promote()"); got != "t" {
			t.Fatalf("promote: %s", got)
		}
		given := make([]belay.Token, 0, 4)
		for range cap(given) {
			var won belay.Lock
			until(t, "the server continues with the standby", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				won, err = d.Lock(ctx, belay.LockRequest{Execution: id, Owner: "after", Reopen: true})
				return err == nil
			})
			given = append(given, won.Lease.Token)
			d.lose(won.Lease)
		}
		t.Logf("tokens %d", given)
		if given[0] <= highest {
			t.Errorf("G1: token %d after %d", given[0], highest)
		}
		highest = given[len(given)-1]
		s.stop()
	}
}

// Rule: while a server runs, a standby that lacks the newest commits of its primary is promoted.
// Then the store has all replicated writes, and no owner gets a token that another owner already
// got, not even a token that only the primary had stored (guarantee G1).
func TestAStandbyTakesOver(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, pgtest.Options{})
	database := primary.Database(t)
	name := database[strings.Index(database, "///")+3 : strings.IndexByte(database, '?')]
	s := newStandby(t, primary)
	s.run()
	d := openDatabase(t, fmt.Sprintf("postgres://postgres@%s,127.0.0.1:%s/%s?sslmode=disable&target_session_attrs=read-write&connect_timeout=2",
		primary.Address(), s.port, name))
	out, err := d.Submit(t.Context(), belay.Submission{Workflow: "w"})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	id := out[0].ID
	first := d.own(id)
	d.lose(first.Lease)
	s.caughtUp()
	s.stop()
	highest := first.Lease.Token
	for range 3 { // the standby does not receive these claims
		l := d.own(id)
		highest = max(highest, l.Lease.Token)
		d.lose(l.Lease)
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	s.run()
	if got := s.ask("SELECT pg_promote()"); got != "t" {
		t.Fatalf("promote: %s", got)
	}
	var won belay.Lock
	until(t, "the server continues with the standby", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		won, err = d.Lock(ctx, belay.LockRequest{Execution: id, Owner: "after", Reopen: true})
		return err == nil
	})
	if won.Lease.Token <= highest {
		t.Errorf("G1: token %d after %d", won.Lease.Token, highest)
	}
	wellFormed(t, events(t, d, id))
	t.Logf("tokens up to %d before, %d after", highest, won.Lease.Token)
}

// Rule: a standby that is not promoted yet counts as unavailable for running servers, for servers
// that start, and for commands. Clients wait, and continue after the promotion.
func TestAStandbyThatIsNotPromotedYetIsUnavailable(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, pgtest.Options{})
	database := primary.Database(t)
	name := database[strings.Index(database, "///")+3 : strings.IndexByte(database, '?')]
	s := newStandby(t, primary)
	s.run()
	f := newGroup(t, fmt.Sprintf("postgres://postgres@%s,127.0.0.1:%s/%s?sslmode=disable&connect_timeout=2",
		primary.Address(), s.port, name), 1)
	server := f.members[0]
	first, err := server.client.Submit(t.Context(), belay.Submission{Workflow: "w"})
	if err != nil || first[0].Err != nil {
		t.Fatal(err, first)
	}
	s.caughtUp()
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	a := api{t, "http://" + server.listen}
	for range 3 {
		if got := a.call("POST", "/v1/executions", `{"workflow": "w"}`); got.status != 503 ||
			got.string("code") != string(belay.CodeUnavailable) {
			t.Errorf("a submission is answered %d: %s", got.status, got.text)
		}
	}
	_, err = embedded.Open(t.Context(), f.url, embedded.Logger(quiet))
	if belay.CodeOf(err) != belay.CodeUnavailable || !strings.Contains(err.Error(), "standby") {
		t.Errorf("a second engine: %v", err)
	}
	another := f.command("serve", "--listen", "127.0.0.1:0")
	another.Env = append(another.Env, "BELAY_STORE="+f.url)
	f.start(another).wait(patience).want(belay.CodeUnavailable.Exit()).saying("standby")

	waits := make(chan error, 1)
	go func() {
		out, err := server.client.Submit(t.Context(), belay.Submission{Workflow: "w"})
		if err == nil {
			err = out[0].Err
		}
		waits <- err
	}()
	if got := s.ask("SELECT pg_promote()"); got != "t" {
		t.Fatalf("promote: %s", got)
	}
	if err := <-waits; err != nil {
		t.Errorf("a client that waited for the promotion: %v", err)
	}
	if x, err := server.client.Execution(t.Context(), first[0].ID); err != nil || x.State != belay.Pending {
		t.Errorf("the earlier execution is %s: %v", x.State, err)
	}
	server.stop()
}
