package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// standby is a PostgreSQL server that replicates the primary asynchronously.
type standby struct {
	w    *world
	dir  string
	port string
	proc *process
}

func (w *world) newStandby(name string) *standby {
	w.t.Helper()
	s := &standby{w: w, dir: w.openPlace("standby-")}
	as := w.unprivileged()
	if as != nil {
		if err := os.Chown(s.dir, int(as.Uid), int(as.Gid)); err != nil {
			w.t.Fatal(err)
		}
	}
	_, s.port, _ = net.SplitHostPort(freeAddress(w.t))
	copying := exec.CommandContext(w.t.Context(), w.database.Binary("pg_basebackup"), "--pgdata=data",
		"--write-recovery-conf", "--checkpoint=fast",
		"--no-sync", "--dbname="+w.database.TCP("postgres"))
	copying.Dir, copying.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := copying.CombinedOutput(); err != nil {
		w.t.Fatalf("pg_basebackup of %s: %v\n%s", name, err, out)
	}
	conf, err := os.OpenFile(filepath.Join(s.dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(conf, "\nport = %s\nunix_socket_directories = '%s'\n", s.port, s.dir)
	if err := conf.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.stop)
	return s
}

// run starts the standby and waits until it answers.
func (s *standby) run(ctx context.Context) {
	s.w.t.Helper()
	cmd := exec.Command(s.w.database.Binary("postgres"), "-D", "data")
	cmd.Dir, cmd.Env = s.dir, s.w.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.w.unprivileged()}
	var err error
	if s.proc, err = s.w.starter.start(cmd, s.w.path("standby."+s.port+".log")); err != nil {
		s.w.t.Fatal(err)
	}
	for s.ask("SELECT 1") != "1" {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			s.w.t.Fatal(err)
		}
	}
}

// stop ends the standby's process at once.
func (s *standby) stop() {
	if s.proc != nil {
		s.proc.signal(syscall.SIGQUIT)
		s.proc.end(20 * time.Second)
		s.proc = nil
	}
}

// ask returns the standby's answer to a query, or the text of the error.
func (s *standby) ask(sql string) string {
	out, _ := exec.Command(s.w.database.Binary("psql"), "-X", "-q", "-A", "-t", "-c", sql, "-h", s.dir, "-p", s.port,
		"-U", "postgres", "postgres").CombinedOutput()
	return strings.TrimSpace(string(out))
}

// newCluster starts a primary with two standbys, and two servers and four workers. Each server
// connects to the database that accepts writes, which is the primary or a promoted standby.
func newCluster(t *testing.T) (*world, []*standby) {
	t.Helper()
	w := emptyWorld(t, onPostgres, *seedFlag)
	w.database = pgtest.Start(t, pgtest.Options{})
	w.url = w.database.Database(t)
	all := []*standby{w.newStandby("the first"), w.newStandby("the second")}
	for _, s := range all {
		s.run(t.Context())
	}
	url := fmt.Sprintf("postgres://postgres@%s,127.0.0.1:%s,127.0.0.1:%s/%s?sslmode=disable&target_session_attrs=read-write&connect_timeout=2",
		w.database.Address(), all[0].port, all[1].port, w.name())
	for i := range 2 {
		s := w.newServer(i)
		s.store = url
		w.servers = append(w.servers, s)
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		w.workers = append(w.workers, w.newSlot(i))
	}
	return w, all
}

// failover stops the given standbys, so that they miss the newest commits. Then it kills the
// primary, and promotes the first of these standbys. It returns the time from the promotion until a
// server acknowledges a submission.
func (w *world) failover(ctx context.Context, kill func(), behind []*standby) time.Duration {
	w.t.Helper()
	for _, s := range behind {
		s.stop()
	}
	_ = pause(ctx, 500*time.Millisecond)
	kill()
	for _, s := range behind {
		s.run(ctx)
	}
	if got := behind[0].ask("SELECT pg_promote()"); got != "t" {
		w.t.Fatalf("promote: %s", got)
	}
	began := time.Now()
	c := &crowd{world: w}
	if err := c.submitAll(ctx, dice(w.seed, "failover"), c.root([]op{{Do: "step", Ms: 1}})); err != nil {
		w.t.Fatal(err)
	}
	w.fault("failover")
	return time.Since(began)
}

// Rule: if several standbys of one primary take over one after the other, whatever commits they
// lack, no token is given out twice, ended executions stay ended, and every execution ends.
func TestFailoverToSiblings(t *testing.T) {
	needsLong(t)
	w, siblings := newCluster(t)
	harmed, calm := context.WithCancel(t.Context())
	c := w.newCrowd()
	r := &record{Store: onPostgres, Servers: len(w.servers), Seed: w.seed, Began: time.Now()}
	loading := make(chan struct{})
	go func() {
		defer close(loading)
		c.load(harmed, t.Context(), 40)
	}()
	var took []time.Duration
	for i, kill := range []func(){
		func() {
			if err := w.database.Kill(); err != nil {
				t.Error(err)
			}
		},
		func() { siblings[0].proc.signal(syscall.SIGQUIT); siblings[0].stop() },
	} {
		_ = pause(harmed, 2*time.Second)
		took = append(took, w.failover(harmed, kill, siblings[i:]))
	}
	_ = pause(harmed, 2*time.Second)
	calm()
	<-loading
	w.heal()
	r.Healed = time.Now()
	r.Open = w.settle(t.Context())
	c.lives.Wait()
	for _, s := range w.workers {
		s.mu.Lock()
		s.ended = true
		s.stop(30 * time.Second)
		s.mu.Unlock()
	}
	r.Settled = time.Now()
	if err := w.readTales(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := w.readTold(r); err != nil {
		t.Fatal(err)
	}
	w.end()
	b, forgotten := newBook(r), 0
	b.told("claim", ok, func(e *entry) {
		if s := b.byID[e.Execution]; s == nil || s.Run(e.Token) == nil {
			forgotten++
		}
	})
	for _, check := range []promise.Check{{Promise: "G1", Find: promise.G1}, {Promise: "G7", Find: promise.G7},
		{Promise: "G15", Find: promise.G15}} {
		f := &promise.Finding{History: b.public(), Promise: check.Promise}
		check.Find(f)
		for _, v := range f.Violated[:min(len(f.Violated), 10)] {
			t.Error(v)
		}
	}
	for _, o := range r.Open {
		t.Error(o)
	}
	fmt.Fprintf(os.Stdout, "%d failovers, a submission acknowledged after %s; %d executions, %d calls, %d claims "+
		"that no database remembers\n",
		w.faults["failover"], took, len(b.stories), len(r.Told), forgotten)
	for i := range r.Told { // the checker must also find a token that was given out twice, so the test plants one
		if e := &r.Told[i]; e.Kind == "claim" && e.End == ok {
			again := *e
			again.Number++
			r.Told = append(r.Told, again)
			break
		}
	}
	f := &promise.Finding{History: newBook(r).public(), Promise: "G1"}
	if promise.G1(f); len(f.Violated) == 0 {
		t.Error("G1: the checker did not find the planted token that is given out twice")
	}
	if forgotten == 0 {
		t.Error("no commit was lost, so no token could have been given out twice")
	}
}
