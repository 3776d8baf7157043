package test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// The limit that two servers share, and the number of workers that contend for its places.
const (
	gateLimit   = 5
	gateWorkers = 6
)

var gateID = belay.Gate(belay.GateLimit, "five")

// gatedGroup is two servers on one database, and the workers of both servers. A run counter counts
// the workers' runs.
type gatedGroup struct {
	*group
	srv     *pgtest.Server
	counter *runCounter
	workers []*started
}

func newGatedGroup(t *testing.T) *gatedGroup {
	t.Helper()
	srv := pgtest.Shared(t)
	g := &gatedGroup{group: newGroup(t, srv.Database(t), 2), srv: srv}
	g.counter = newRunCounter(t, g.path("counter"), gateLimit)
	for i := range gateWorkers {
		g.workers = append(g.workers, g.worker(i))
	}
	return g
}

// worker starts the i-th worker.
func (g *gatedGroup) worker(i int) *started {
	return g.start(g.role("gated", nameEnv+fmt.Sprintf("=w%d", i), socketEnv+"="+g.counter.path,
		urlEnv+"=http://"+g.members[i%len(g.members)].listen))
}

// submit submits executions under the limit at one of the servers, in calls of at most 500.
func (g *gatedGroup) submit(r *rand.Rand, m *member, n int) error {
	for n > 0 {
		all := make([]belay.Submission, min(n, 500))
		for i := range all {
			all[i] = belay.Submission{Workflow: "gated", Input: fmt.Appendf(nil, "%d", r.IntN(4))}
			all[i].Concurrency = &belay.Concurrency{Name: gateID.Name(), Max: gateLimit}
		}
		out, err := m.client.Submit(g.t.Context(), all...)
		if err != nil {
			return err
		}
		for _, o := range out {
			if o.Err != nil {
				return o.Err
			}
		}
		n -= len(all)
	}
	return nil
}

// query runs SQL on the database of the group.
func (g *gatedGroup) query(sql string) string {
	g.t.Helper()
	path, _, _ := strings.Cut(g.url, "?")
	out, err := g.srv.Query(path[strings.LastIndexByte(path, '/')+1:], sql)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// gateSnapshot counts three things in one snapshot: the taken places of the limit, the executions
// that a live session runs, and the executions that run without a place.
var gateSnapshot = fmt.Sprintf(`
SELECT count(*) FILTER (WHERE p.held), count(*) FILTER (WHERE e.state = %d AND w.ended_at IS NULL),
       count(*) FILTER (WHERE e.state = %d AND p.held IS NOT TRUE)
FROM (SELECT execution, held FROM places WHERE gate = '%s' AND held) p
FULL JOIN (SELECT id, state, worker FROM executions WHERE worker IS NOT NULL) e ON e.id = p.execution
LEFT JOIN workers w ON w.id = e.worker`, belay.Running, belay.Running, gateID)

// gateOverlap computes the largest number of executions that had a place at the same time, from the
// times in the rows of the executions. An execution has its place from the beginning of its first
// run until the execution ends.
const gateOverlap = `
SELECT max(n) FROM (
    SELECT sum(d) OVER (ORDER BY at, d) AS n
    FROM (
        SELECT started_at AS at, 1 AS d FROM executions WHERE started_at IS NOT NULL
        UNION ALL
        SELECT finished_at, -1 FROM executions WHERE started_at IS NOT NULL AND finished_at IS NOT NULL
    ) edges
) running`

// look reports the moments at which the run counter has counted more executions than the limit allows,
// and checks that the limit holds in a snapshot of the database.
func (g *gatedGroup) look() {
	g.t.Helper()
	for _, text := range g.counter.violations() {
		g.t.Error(text)
	}
	var held, live, without int
	text := g.query(gateSnapshot)
	if _, err := fmt.Sscanf(text, "%d|%d|%d", &held, &live, &without); err != nil {
		g.t.Fatalf("%q: %v", text, err)
	}
	if held > gateLimit || live > held || without > 0 {
		g.t.Errorf("%d places were taken, live sessions ran %d executions, and %d ran without a place", held, live,
			without)
	}
}

// Rule: executions of one limit never have more runs in progress than the limit allows, over any
// number of servers and workers, while the test kills servers and workers and starts them again
// (guarantee G16). When all executions have ended, no place is taken. Then the test raises the
// limit by one and checks that its own counts exceed the former limit: so the counts would have
// shown a violation.
func TestALimitHoldsWhileServersAndWorkersAreKilled(t *testing.T) {
	t.Parallel()
	n, each := 5000, 5 // the number of executions, and how many hundreds of runs begin between two kills
	if *long {
		n, each = 100_000, 10
	}
	r := dice(t)
	g := newGatedGroup(t)
	began := time.Now()
	var clients sync.WaitGroup
	for i, m := range g.members {
		inputs := rand.New(rand.NewPCG(*seed, uint64(i)))
		clients.Go(func() {
			if err := g.submit(inputs, m, n/2); err != nil {
				t.Error(err)
			}
		})
	}
	kills := 0
	for hundreds := 1; 100*hundreds < n; hundreds++ {
		until(t, "more runs begin", func() bool {
			begun, _, _ := g.counter.counts()
			return begun >= 100*hundreds || t.Failed()
		})
		g.look()
		if t.Failed() {
			return
		}
		if hundreds%each != 0 {
			continue
		}
		if kills++; kills%3 == 0 {
			g.members[r.IntN(len(g.members))].kill()
			continue
		}
		i := r.IntN(len(g.workers))
		g.workers[i].signal(syscall.SIGKILL)
		g.workers[i].wait(patience)
		g.workers[i] = g.worker(i)
	}
	clients.Wait()
	g.empty()
	g.look()
	begun, inside, highest := g.counter.counts()
	if begun < n || inside != 0 || highest != gateLimit {
		t.Errorf("%d runs began, %d are in progress, at most %d executions had one at a time; want %d, 0 and %d",
			begun, inside, highest, n, gateLimit)
	}
	if got, want := g.query("SELECT count(*) FROM executions WHERE state = "+fmt.Sprint(int(belay.Succeeded))),
		fmt.Sprint(n); got != want {
		t.Errorf("%s executions succeeded, want %s", got, want)
	}
	if got, want := g.query(gateOverlap), fmt.Sprint(gateLimit); got != want {
		t.Errorf("by the stored times %s executions had a place at the same time, want %s", got, want)
	}
	t.Logf("%d claims and %d kills in %s; %s lost runs", begun, kills, time.Since(began).Round(time.Millisecond),
		g.query("SELECT count(*) FROM runs WHERE outcome = "+fmt.Sprint(int(belay.OutcomeLost))))
	g.sees(r)
	for _, w := range g.workers {
		w.signal(syscall.SIGTERM)
		w.wait(patience).want(0)
	}
	for _, m := range g.members {
		m.stop()
	}
}

// empty waits until all executions have ended, and checks that no place of the limit is taken.
func (g *gatedGroup) empty() {
	g.t.Helper()
	until(g.t, "all executions have ended", func() bool {
		return g.query("SELECT count(*) FROM executions WHERE finished_at IS NULL") == "0"
	})
	for _, m := range g.members {
		d, err := m.client.Gate(g.t.Context(), gateID)
		if err != nil || d.Held != 0 || d.Waiting != 0 || len(d.Holders) > 0 {
			g.t.Errorf("after the end the gate is %+v, %v", d, err)
		}
	}
	if rows := g.query("SELECT count(*) FROM places"); rows != "0" {
		g.t.Errorf("after the end there are %s rows of places", rows)
	}
}

// sees raises the limit by one, and waits until the run counter and the stored times show more
// executions in progress than the former limit allowed.
func (g *gatedGroup) sees(r *rand.Rand) {
	g.t.Helper()
	if _, err := g.members[0].client.ChangeGate(g.t.Context(), belay.GateChange{
		Gate: gateID, Action: belay.GateSetLimit, Max: gateLimit + 1,
	}); err != nil {
		g.t.Fatal(err)
	}
	if err := g.submit(r, g.members[0], 200); err != nil {
		g.t.Fatal(err)
	}
	until(g.t, "a sixth execution is counted", func() bool { return len(g.counter.violations()) > 0 })
	g.empty()
	if got, want := g.query(gateOverlap), fmt.Sprint(gateLimit+1); got != want {
		g.t.Errorf("by the stored times %s executions had a place at the same time, want %s", got, want)
	}
}
