package test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/belaydev/belay/workflow"
)

// group is several real servers on one database.
type group struct {
	*place
	url     string   // the address of the database; empty for the data directory of the place
	env     []string // more variables of the environment
	members []*member
}

// member is one server of a group. It keeps its address over a restart.
type member struct {
	group  *group
	listen string
	proc   *started
	client *client.Client
}

func newGroup(t *testing.T, url string, size int, env ...string) *group {
	t.Helper()
	f := &group{place: newPlace(t), url: url, env: env}
	for range size {
		m := &member{group: f, listen: freeAddress(t)}
		m.start()
		var err error
		if m.client, err = client.Dial(t.Context(), "http://"+m.listen, client.Logger(quiet)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.client.Close() })
		f.members = append(f.members, m)
	}
	return f
}

// freeAddress returns an address on which no process listens. The kernel does not give the port of
// that address to another process soon.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the server and waits until it is ready.
func (m *member) start() {
	m.group.t.Helper()
	cmd := m.group.command("serve", "--listen", m.listen)
	cmd.Env = append(cmd.Env, m.group.env...)
	if m.group.url != "" {
		cmd.Env = append(cmd.Env, "BELAY_STORE="+m.group.url)
	}
	m.proc = m.group.start(cmd)
	m.proc.until("the server is ready", func() bool { return ready.MatchString(m.proc.err.String()) })
}

// kill kills the server with SIGKILL and starts it again.
func (m *member) kill() {
	m.group.t.Helper()
	m.proc.signal(syscall.SIGKILL)
	m.proc.wait(patience)
	m.start()
}

func (m *member) stop() {
	m.group.t.Helper()
	m.proc.signal(syscall.SIGTERM)
	m.proc.wait(patience).want(0)
}

// counter starts a worker that counts. The worker connects only to this server.
func (m *member) counter(name string) *started {
	f := m.group
	return f.start(f.role("counter", nameEnv+"="+name, urlEnv+"=http://"+m.listen, ledgerEnv+"="+f.path(name),
		releaseEnv+"="+f.path("release")))
}

// goesOn waits until the store has more saved steps of an execution.
func (m *member) goesOn(id belay.ExecutionID) {
	m.group.t.Helper()
	var from int64
	until(m.group.t, "the execution continues", func() bool {
		x, err := m.client.Execution(m.group.t.Context(), id)
		if err != nil {
			m.group.t.Fatal(err)
		}
		if from == 0 {
			from = x.Seq
		}
		return x.State == belay.Running && x.Seq > from+20
	})
}

// Rule: any server can serve any request: a worker of one server runs the execution that was
// submitted to another server, and a kill of the servers and of their database loses no
// acknowledged write (guarantees G1, G2 and G3).
func TestServersShareADatabase(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgtest.Options{})
	f := newGroup(t, srv.Database(t), 2)
	a, b := f.members[0], f.members[1]
	w := a.counter("at-a")
	h, err := workflow.Start[int](t.Context(), b.client, "count", nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.goesOn(h.ID())
	t.Logf("the execution runs %s after it was submitted at another server", time.Since(began).Round(time.Millisecond))
	for _, fall := range []func(){
		a.kill, b.kill, a.kill,
		func() { must(t, srv.Restart()) },
		func() { must(t, srv.Kill()); must(t, srv.Resume()) },
		func() { srv.Terminate(t, f.url) },
	} {
		fall()
		b.goesOn(h.ID())
	}
	if err := os.WriteFile(f.path("release"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := h.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.signal(syscall.SIGTERM)
	w.wait(patience).want(0)
	f.counted(h.ID(), n, "at-a")
	for _, m := range f.members {
		m.stop()
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// counted checks that the execution has counted to n: each number is saved once, in order, and
// under the token that the worker wrote into its ledger (a file outside of Belay).
func (f *group) counted(id belay.ExecutionID, n int, name string) {
	f.t.Helper()
	saved := map[int]belay.Token{}
	for i, ev := range events(f.t, f.members[0].client, id) {
		if ev.Seq != int64(i+1) {
			f.t.Fatalf("event %d has seq %d", i+1, ev.Seq)
		}
		if ev.Kind == "step" {
			saved[len(saved)+1] = ev.Token
			if want := fmt.Sprintf("n[%d]", len(saved)); ev.Name != want {
				f.t.Fatalf("step %s, want %s", ev.Name, want)
			}
		}
	}
	if len(saved) != n {
		f.t.Errorf("the execution counted to %d and saved %d steps", n, len(saved))
	}
	for _, told := range readLedger(f.t, f.path(name)) {
		if saved[told.n] != told.token {
			f.t.Errorf("G3: %d was acknowledged under token %d; the store has it under %d", told.n, told.token,
				saved[told.n])
		}
	}
}

// Rule: every submission that any of the servers acknowledged is in the store after the servers and
// the database were killed at any moment (guarantee G3).
func TestSubmissionsAcknowledgedByAnyServerSurviveKills(t *testing.T) {
	t.Parallel()
	r := dice(t)
	srv := pgtest.Start(t, pgtest.Options{})
	f := newGroup(t, srv.Database(t), 2)
	var told acknowledgements
	for i := range 4 {
		var all sync.WaitGroup
		had := len(told.list())
		for _, m := range f.members {
			api{t, "http://" + m.listen}.hammer(&all, &told, 4)
		}
		f.members[0].proc.until("a submission is acknowledged", func() bool { return len(told.list()) > had+20 })
		f.members[0].proc.after(between(r, 0, 100*time.Millisecond))
		if i%2 == 1 {
			must(t, srv.Kill())
		}
		for _, m := range f.members {
			m.proc.signal(syscall.SIGKILL)
			m.proc.wait(patience)
		}
		all.Wait()
		if i%2 == 1 {
			must(t, srv.Resume())
		}
		for _, m := range f.members {
			m.start()
		}
	}
	for i, text := range told.list() {
		id, err := belay.ParseExecutionID(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.members[i%2].client.Execution(t.Context(), id); err != nil {
			t.Errorf("acknowledged and lost: %v", err)
		}
	}
	t.Logf("%d acknowledged", len(told.list()))
}

// Rule: an idle server uses less than one transaction a second and one percent of a core, also with thousands of
// schedules whose slots are far away.
func TestAnIdleServerCostsAlmostNothing(t *testing.T) {
	t.Parallel()
	// PostgreSQL's own maintenance would be counted too.
	srv := pgtest.Start(t, pgtest.Options{NoSync: true, Settings: map[string]string{"autovacuum": "off"}})
	f := newGroup(t, srv.Database(t), 2)
	schedules := 1000
	if *long {
		schedules = 10_000
	}
	farSchedules(t, f.members[0].client, schedules)
	// PostgreSQL's statistics can be 10 s late after the many commits of the schedules. A server does most of its idle
	// work at once, every 30 s, so it does that work at most once while it is watched.
	const settling, watched = 15 * time.Second, 29 * time.Second
	pids := []int{f.members[0].proc.cmd.Process.Pid, f.members[1].proc.cmd.Process.Pid}
	f.members[0].proc.after(settling)
	cpu, done := cpuTime(t, pids...), transactions(t, srv, f.url)
	f.members[0].proc.after(watched)
	spent, n := cpuTime(t, pids...)-cpu, transactions(t, srv, f.url)-done
	t.Logf("%s of processor time and %d transactions in %s, of two servers", spent, n, watched)
	// the statistics at the begin can be late by a few transactions of the settling
	if most := 2*int(watched/time.Second) + 4; n >= most {
		t.Errorf("%d transactions in %s", n, watched)
	}
	if most := 2 * watched / 100; spent > most {
		t.Errorf("%s of processor time in %s", spent, watched)
	}
}

// transactions returns the number of transactions that a database has counted since it was made.
func transactions(t *testing.T, srv *pgtest.Server, url string) int {
	t.Helper()
	path, _, _ := strings.Cut(url, "?")
	text, err := srv.Query("postgres", "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '"+
		path[strings.LastIndexByte(path, '/')+1:]+"'")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// cpuTime returns the processor time that processes have used.
func cpuTime(t *testing.T, pids ...int) time.Duration {
	t.Helper()
	var ticks int
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] { // user and system time, in clock ticks
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Rule: belay refuses the password of a database on its command line, and shows it in no output.
func TestThePasswordOfADatabaseIsNotShown(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	url := pgtest.Shared(t).Database(t)
	p := newPlace(t)
	p.belay("serve", "--store", "postgres://me:"+secret+
		"@db/x").want(65).saying("everybody on this machine can read a command line")
	x := p.command("serve", "--listen", "127.0.0.1:0")
	x.Env = append(x.Env, "BELAY_STORE="+url+"&password="+secret)
	server := p.start(x)
	server.until("the server is ready", func() bool { return ready.MatchString(server.err.String()) })
	a := api{t, ready.FindString(server.err.String())}
	a.want(200, "GET", "/v1/executions", "")
	create := p.command("keys", "create", "--name", "ops", "--scope", "admin")
	create.Env = x.Env
	key := strings.TrimSpace(p.start(create).wait(patience).want(0).out)
	until(t, "the server wants a key", func() bool { return a.call("GET", "/v1/executions", "").status == 401 })
	a.want(200, "GET", "/v1/executions", "", "Authorization", "Bearer "+key)
	server.signal(syscall.SIGTERM)
	end := server.wait(patience).want(0)
	check := p.command("serve", "--check-config")
	check.Env = x.Env
	for _, text := range []string{end.err, end.out, p.start(check).wait(patience).want(0).out} {
		if strings.Contains(text, secret) {
			t.Errorf("the password is shown:\n%s", clip(text))
		}
	}
}
