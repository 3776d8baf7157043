package test

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// rollout is several servers on one database, each with a worker. The test replaces the servers and
// workers by servers and workers of another version.
type rollout struct {
	*place
	url              string // the address of the database
	servers, workers []*process
}

// process is a server or a worker. It keeps its name and its address when a process of another
// version replaces it.
type process struct {
	*rollout
	name   string
	listen string // the address of a server; empty for a worker
	runs   atomic.Pointer[version]
	turn   atomic.Int64 // counts starts and ends of replacements, so it is odd during a replacement
	proc   *started
}

func (m *process) version() string { return m.runs.Load().name }

// start starts the process with the programs of a version.
func (m *process) start(v version) {
	m.t.Helper()
	m.runs.Store(&v)
	if m.listen == "" {
		i, _ := strconv.Atoi(m.name)
		m.proc = m.rollout.start(m.program(v.orders, "ORDERS_NAME="+m.name, "ORDERS_URL=http://"+m.servers[i].listen))
		return
	}
	cmd := m.program(v.belay, "BELAY_STORE="+m.url)
	cmd.Args = append(cmd.Args, "serve", "--listen", m.listen)
	m.proc = m.rollout.start(cmd)
	m.proc.until("the server is ready", func() bool { return ready.MatchString(m.proc.err.String()) })
}

// replace ends the process gracefully and starts it again with the programs of another version.
func (m *process) replace(v version) {
	m.t.Helper()
	m.turn.Add(1)
	m.proc.signal(syscall.SIGTERM)
	m.proc.wait(patience).want(0)
	m.start(v)
	m.turn.Add(1)
}

func (r *rollout) program(path string, env ...string) *exec.Cmd {
	cmd := exec.Command(path)
	cmd.Dir, cmd.Env = r.cwd, r.environment(env...)
	return cmd
}

// runWith runs a belay command of one version on the database, and waits for its end.
func (r *rollout) runWith(v version, args ...string) result {
	r.t.Helper()
	cmd := r.program(v.belay)
	cmd.Args = append(cmd.Args, args...)
	cmd.Args = append(cmd.Args, "--store", r.url)
	return r.start(cmd).wait(patience)
}

// number reads a number from a database.
func number(t *testing.T, srv *pgtest.Server, url, text string) int {
	t.Helper()
	path, _, _ := strings.Cut(url, "?")
	out, err := srv.Query(path[strings.LastIndexByte(path, '/')+1:], text)
	must(t, err)
	n, err := strconv.Atoi(out)
	must(t, err)
	return n
}

const schema = "SELECT max(version_id) FROM goose_db_version"

// Rule: while work goes on, an operator can replace servers and workers one at a time. Both
// versions serve one database side by side, and workers of one version run executions that were
// submitted to the other version. Every acknowledged execution ends once, with its result, under
// one owner at a time (guarantees G1, G2, G3 and G15). The earlier version in this test is the last
// commit without the newest migration. But if servers of that commit may not run beside servers of
// this version, the earlier version is the commit that added the migration.
func TestServersAreReplacedOneAtATime(t *testing.T) {
	t.Parallel()
	newest, shared := newestMigration(t)
	before, after := versions(t, func() (string, error) {
		if shared {
			return lastWithout(newest)
		}
		added, err := firstWith(newest)
		if err == nil && added == "" {
			t.Skip("no earlier version that may run beside this one is committed yet")
		}
		return added, err
	})
	srv := pgtest.Start(t, pgtest.Options{})
	r := &rollout{place: newPlace(t), url: srv.Database(t)}
	r.members(before, 3)
	o := r.load(6, dice(t))
	o.further(30, "before", anyOrder)

	r.migrate(srv, before, after)
	o.further(30, "at old servers, after the migration", anyOrder)
	r.restartOld(srv, before)

	a := r.servers
	a[0].replace(after)
	r.workers[2].replace(after) // this worker's server still has the old version
	for _, way := range []order{
		{via: "after", at: "before", by: "before"}, {via: "after", at: "before", by: "after"},
		{via: "before", at: "after", by: "before"},
	} {
		o.further(5, fmt.Sprintf("side by side: %+v", way), func(x order) bool { x.id = way.id; return x == way })
	}
	a[1].replace(after)
	o.further(20, "at two new servers and an old one", anyOrder)
	a[2].replace(after)
	r.workers[0].replace(after)
	r.workers[1].replace(after)
	o.further(30, "in the new version alone", func(x order) bool {
		return x.via == "after" && x.at == "after" && x.by == "after"
	})
	r.conserved(srv, o.over())
	for _, m := range append(r.workers, r.servers...) {
		m.proc.signal(syscall.SIGTERM)
		m.proc.wait(patience).want(0)
	}
}

// members starts n servers, each with a worker.
func (r *rollout) members(v version, n int) {
	r.t.Helper()
	for i := range n {
		r.servers = append(r.servers, &process{rollout: r, name: strconv.Itoa(i), listen: freeAddress(r.t)})
		r.servers[i].start(v)
	}
	for i := range n {
		r.workers = append(r.workers, &process{rollout: r, name: strconv.Itoa(i)})
		r.workers[i].start(v)
	}
}

// migrate migrates the schema while the old servers run. A dry run first prints the steps and
// changes nothing.
func (r *rollout) migrate(srv *pgtest.Server, before, after version) {
	t := r.t
	t.Helper()
	was := number(t, srv, r.url, schema)
	var steps []struct {
		Version int
		SQL     string
	}
	decode(t, r.runWith(after, "migrate", "--dry-run", "-o", "json").want(0).out, &steps)
	if len(steps) == 0 && was == r.newest(srv, before) {
		return
	}
	told := r.runWith(after, "migrate", "--dry-run").want(0)
	if len(steps) == 0 || steps[0].Version != was+1 {
		t.Fatalf("steps %+v after schema %d", steps, was)
	}
	for _, s := range steps {
		if s.SQL == "" || !strings.Contains(told.out, strings.TrimSpace(s.SQL)) {
			t.Errorf("the SQL of step %d is not printed:\n%s", s.Version, told.out)
		}
	}
	if now := number(t, srv, r.url, schema); now != was {
		t.Errorf("the dry run has brought schema %d to %d", was, now)
	}
	r.runWith(after, "migrate").want(0).saying("migrated")
	if now, want := number(t, srv, r.url, schema), steps[len(steps)-1].Version; now != want {
		t.Errorf("schema %d, want %d", now, want)
	}
}

// restartOld starts a server of the old version after the migration, and checks the result. The
// server must run if the schema allows its version and if its version can read which versions the
// schema allows. Otherwise the server must print that it is too old.
func (r *rollout) restartOld(srv *pgtest.Server, before version) {
	t := r.t
	t.Helper()
	newest := r.newest(srv, before)
	if newest >= 2 && newest >= number(t, srv, r.url, "SELECT oldest FROM meta") {
		r.runWith(before, "migrate").want(0)
		r.servers[1].replace(before)
		return
	}
	r.tooOld(before)
}

// tooOld checks that every command of a version that opens the database prints that the version is
// too old.
func (r *rollout) tooOld(v version) {
	r.t.Helper()
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"migrate"}, {"migrate", "--dry-run"}} {
		if end := r.runWith(v, args...).saying("a newer Belay migrated it"); end.code == 0 {
			r.t.Errorf("a refusal ends with exit code 0: %s", end)
		}
	}
}

// newest returns the newest schema that a version knows.
func (r *rollout) newest(srv *pgtest.Server, v version) int {
	r.t.Helper()
	var knows []struct{ Version int }
	empty := rollout{place: r.place, url: srv.Database(r.t)}
	decode(r.t, empty.runWith(v, "migrate", "--dry-run", "-o", "json").want(0).out, &knows)
	return knows[len(knows)-1].Version
}

// Rule: after a migration that allows no older server, the running older servers refuse all
// requests with the reason, and no older server can start. Once all servers are replaced, work
// continues: every acknowledged execution ends once, and no worker loses its session during the
// replacement.
func TestServersThatTheSchemaForbidsAreReplacedTogether(t *testing.T) {
	t.Parallel()
	newest, shared := newestMigration(t)
	if shared {
		t.Skip("the newest migration allows servers of the version before it")
	}
	before, after := versions(t, func() (string, error) { return lastWithout(newest) })
	srv := pgtest.Start(t, pgtest.Options{})
	r := &rollout{place: newPlace(t), url: srv.Database(t)}
	r.members(before, 3)
	o := r.load(6, dice(t))
	o.further(30, "before", anyOrder)

	for _, m := range r.servers {
		m.turn.Add(1)
	}
	r.runWith(after, "migrate").want(0).saying("migrated")
	for _, m := range r.servers {
		a := api{t, "http://" + m.listen}
		told := a.want(503, "POST", "/v1/executions", `{"workflow":"w"}`).text
		if !strings.Contains(told, fmt.Sprintf("must know schema %d", number(t, srv, r.url, schema))) {
			t.Errorf("a server that is too old answers: %s", told)
		}
		a.want(503, "GET", "/readyz", "")
	}
	r.tooOld(before)
	for _, m := range r.servers {
		m.proc.signal(syscall.SIGTERM)
	}
	for _, m := range r.servers {
		m.proc.wait(patience)
		m.start(after)
	}
	for _, m := range r.servers {
		m.turn.Add(1)
	}
	o.further(30, "at new servers, by old workers", func(x order) bool { return x.via == "after" && x.by == "before" })
	for _, m := range r.workers {
		m.replace(after)
	}
	o.further(10, "in the new version alone", func(x order) bool { return x.at == "after" && x.by == "after" })
	r.conserved(srv, o.over())
	for _, m := range append(r.workers, r.servers...) {
		m.proc.signal(syscall.SIGTERM)
		m.proc.wait(patience).want(0)
	}
}

// conserved checks that every order and each of its children has ended once, with the right result.
func (r *rollout) conserved(srv *pgtest.Server, all []order) {
	t := r.t
	t.Helper()
	c, err := client.Dial(t.Context(), "http://"+r.servers[0].listen, client.Logger(quiet))
	must(t, err)
	defer c.Close()
	if n := number(t, srv, r.url, "SELECT count(*) FROM executions"); n != 2*len(all) {
		t.Errorf("%d executions of %d orders with a child each", n, len(all))
	}
	for _, x := range all {
		for id, steps := range map[belay.ExecutionID]int{x.id: 3, belay.ChildID(x.id, 1, "half"): 2} {
			past := events(t, c, id)
			wellFormed(t, past)
			if n := len(savedSteps(t, past)); n != steps || count(past, "succeeded") != 1 ||
				count(past, "lost")+count(past, "failed") != 0 {
				t.Errorf("%d steps\n%s", n, show(past))
			}
		}
	}
	if n := number(t, srv, r.url, "SELECT count(*) FROM workers WHERE state = "+
		strconv.Itoa(int(belay.WorkerLost))); n != 0 {
		t.Errorf("%d workers were lost", n)
	}
}

// Rule: a server that is older than the schema runs if the schema allows its version. Otherwise the
// server does not start, no command opens the database, and both say why in a clear sentence; a
// server that is already running refuses to write.
func TestAnOlderServerRunsIfTheSchemaAllowsIt(t *testing.T) {
	t.Parallel()
	srv := pgtest.Shared(t)
	r := &rollout{place: newPlace(t), url: srv.Database(t)}
	now := version{name: "now", belay: binary(t)}
	r.runWith(now, "migrate").want(0)
	known := number(t, srv, r.url, schema)
	future := fmt.Sprintf("INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, true) RETURNING 1",
		known+2)
	number(t, srv, r.url, future)

	number(t, srv, r.url, fmt.Sprintf("UPDATE meta SET oldest = %d RETURNING 1", known))
	r.runWith(now, "migrate").want(0)
	if told := r.runWith(now, "migrate", "--dry-run").want(0); told.out != "" {
		t.Errorf("there is nothing to do, and the dry run prints:\n%s", told.out)
	}
	r.runWith(now, "restore", "--epoch").want(0)
	m := &process{rollout: r, name: "0", listen: freeAddress(t)}
	m.start(now)
	a := api{t, "http://" + m.listen}
	a.want(201, "POST", "/v1/executions", `{"workflow":"w"}`)
	if got := a.want(200, "GET", "/metrics", "").text; !strings.Contains(got, `belay_executions{state="pending"} 1`) {
		t.Errorf("the metrics do not count the execution:\n%s", got)
	}
	m.replace(now)

	number(t, srv, r.url, fmt.Sprintf("UPDATE meta SET oldest = %d RETURNING 1", known+1))
	if refused := a.want(503, "POST", "/v1/executions", `{"workflow":"w"}`).text; !strings.Contains(refused,
		fmt.Sprintf("schema %d", known+1)) {
		t.Errorf("a server that became too old refuses with:\n%s", refused)
	}
	a.want(503, "GET", "/readyz", "")
	a.want(200, "GET", "/v1/executions", "")
	for _, args := range [][]string{
		{"serve", "--listen", "127.0.0.1:0"}, {"migrate"}, {"migrate", "--dry-run"}, {"restore", "--epoch"},
	} {
		end := r.runWith(now, args...).saying("a newer Belay migrated it", fmt.Sprintf("schema %d", known+2))
		if end.code == 0 {
			t.Errorf("a refusal ends with exit code 0: %s", end)
		}
	}
	if n := number(t, srv, r.url, "SELECT count(*) FROM executions"); n != 1 {
		t.Errorf("%d executions, want 1", n)
	}
}
