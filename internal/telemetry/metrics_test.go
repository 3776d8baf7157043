package telemetry_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/telemetry"
	"github.com/belaydev/belay/internal/trace"
)

// observed makes an engine with metrics.
func observed(t *testing.T) (*engine.Engine, *telemetry.Metrics) {
	t.Helper()
	m := telemetry.New("1.2.3", "abc")
	e := engine.New(memory.New(time.Now), engine.Options{Observe: m.Observe})
	m.Watch(e)
	m.Live(e)
	return e, m
}

// scrape reads the values of all metrics, by name and labels.
func scrape(t *testing.T, m *telemetry.Metrics) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	all := make(map[string]float64)
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[line[:at]] = v
	}
	return all
}

// open opens a worker's session.
func open(t *testing.T, e *engine.Engine, ttl time.Duration, workflows ...string) belay.WorkerID {
	t.Helper()
	spec := belay.WorkerSpec{Name: "w", Capacity: 10, TTL: belay.Duration(ttl)}
	for _, w := range workflows {
		spec.Workflows = append(spec.Workflows, belay.Registration{Workflow: w})
	}
	s, err := e.OpenWorker(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// claim claims the executions that are due, and checks their number.
func claim(t *testing.T, e *engine.Engine, id belay.WorkerID, number int64, want int) []belay.Assignment {
	t.Helper()
	r, err := e.Claim(t.Context(), belay.ClaimRequest{Worker: id, Number: number, Slots: 10})
	if err != nil || len(r.Assignments) != want {
		t.Fatalf("claim %d: %+v, %v, want %d", number, r, err, want)
	}
	return r.Assignments
}

func submit(t *testing.T, e *engine.Engine, s ...belay.Submission) []belay.Submitted {
	t.Helper()
	out, err := e.Submit(t.Context(), s...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Rule: after a known sequence of events every metric has the expected value.
func TestMetricsHaveTheExpectedValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := observed(t)
		defer e.Close()
		submit(t, e, belay.Submission{Workflow: "a"}, belay.Submission{Workflow: "a"},
			belay.Submission{Workflow: "b", Policy: belay.Policy{MaxAttempts: 1}})
		submit(t, e, belay.Submission{Workflow: "idle"})
		time.Sleep(3 * time.Second) // the executions are due for 3 seconds before they are claimed
		w := open(t, e, 10*time.Second, "a", "b")
		won := claim(t, e, w, 1, 3)
		settle(t, e, won)
		if _, err := e.Save(t.Context(), belay.Save{Lease: won[0].Lease, Kind: belay.KindStep,
			Key: "late"}); belay.CodeOf(err) != belay.CodeLeaseLost {
			t.Errorf("a stale checkpoint: %v", err)
		}
		lostOne := submit(t, e, belay.Submission{Workflow: "a"})[0].ID
		claim(t, e, w, 2, 1)
		time.Sleep(12 * time.Second) // the worker sends no more heartbeats
		if x, err := e.Execution(t.Context(), lostOne); err != nil || x.State != belay.Pending {
			t.Fatalf("%+v, %v", x, err)
		}
		got := scrape(t, m)
		want := map[string]float64{
			`belay_executions_submitted_total{trigger="manual",workflow="a"}`:    3,
			`belay_executions_submitted_total{trigger="manual",workflow="b"}`:    1,
			`belay_executions_submitted_total{trigger="manual",workflow="idle"}`: 1,
			`belay_executions_finished_total{state="succeeded",workflow="a"}`:    2,
			`belay_executions_finished_total{state="failed",workflow="b"}`:       1,
			`belay_runs_finished_total{outcome="succeeded"}`:                     2,
			`belay_runs_finished_total{outcome="timed_out"}`:                     1,
			`belay_runs_finished_total{outcome="lost"}`:                          1,
			`belay_runs_finished_total{outcome="suspended"}`:                     0,
			`belay_execution_timeouts_total{kind="run"}`:                         1,
			`belay_stale_writes_refused_total{op="checkpoint"}`:                  1,
			`belay_stale_writes_refused_total{op="settle"}`:                      0,
			`belay_schedule_to_start_seconds_count`:                              4,
			`belay_schedule_to_start_seconds_sum`:                                9,
			`belay_claim_seconds_count`:                                          2,
			`belay_detection_seconds_count`:                                      1,
			`belay_detection_seconds_sum`:                                        10,
			`belay_executions{state="pending"}`:                                  2,
			`belay_executions{state="running"}`:                                  0,
			`belay_executions{state="waiting"}`:                                  0,
			`belay_dead_letters{reason="timeout"}`:                               1,
			`belay_dead_letters{reason="permanent_error"}`:                       0,
			`belay_dead_letters{reason="max_retries"}`:                           0,
			`belay_dead_letters{reason="no_worker"}`:                             0,
			`belay_dead_letters{reason="lost"}`:                                  0,
			`belay_workers{state="open"}`:                                        0,
			`belay_executions_oldest_due_seconds`:                                15,
			`belay_executions_overdue{state="running"}`:                          0,
			`belay_store_readable`:                                               1,
		}
		for name, n := range want {
			if v, ok := got[name]; !ok || v != n {
				t.Errorf("%s is %v (exists: %t), want %v", name, v, ok, n)
			}
		}
		if got["belay_commit_seconds_count"] < 5 ||
			got["belay_commit_seconds_count"] != got["belay_commit_batch_size_count"] {
			t.Errorf("%v commits, %v batches", got["belay_commit_seconds_count"], got["belay_commit_batch_size_count"])
		}
		if !strings.Contains(fmt.Sprint(got), `belay_build_info{commit="abc"`) || got["go_goroutines"] == 0 ||
			got["process_start_time_seconds"] == 0 {
			t.Error("the build, the runtime or the process is missing")
		}
	})
}

// Rule: the metrics of workers do not count the session of a lock, neither while the lock is valid
// nor after its owner was lost. A cordoned worker has a state of its own.
func TestALockIsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := observed(t)
		defer e.Close()
		id := submit(t, e, belay.Submission{Workflow: "w", External: true})[0].ID
		if _, err := e.Lock(t.Context(), belay.LockRequest{Execution: id, Owner: "cron"}); err != nil {
			t.Fatal(err)
		}
		open(t, e, time.Hour, "w")
		if err := e.Cordon(t.Context(), belay.Cordon{Worker: open(t, e, time.Hour, "w")}); err != nil {
			t.Fatal(err)
		}
		check := func(want map[string]float64) {
			t.Helper()
			for name, got := range scrape(t, m) {
				if n, ok := want[name]; ok && n != got {
					t.Errorf("%s is %v, want %v", name, got, n)
				}
				delete(want, name)
			}
			if len(want) > 0 {
				t.Errorf("there is no %v", want)
			}
		}
		check(map[string]float64{
			`belay_executions{state="running"}`: 1, `belay_workers{state="open"}`: 1, `belay_workers{state="cordoned"}`: 1,
			`belay_workers{state="draining"}`: 0,
		})
		time.Sleep(time.Minute) // the lock expires
		check(map[string]float64{
			`belay_executions{state="running"}`: 0, `belay_workers{state="open"}`: 1, `belay_detection_seconds_count`: 0,
			`belay_runs_finished_total{outcome="lost"}`: 1,
		})
	})
}

// settle ends the runs of workflow a with success and the runs of workflow b with a timeout.
func settle(t *testing.T, e *engine.Engine, won []belay.Assignment) {
	t.Helper()
	for _, a := range won {
		outcome := belay.OutcomeSucceeded
		if a.Workflow == "b" {
			outcome = belay.OutcomeTimedOut
		}
		if err := e.Settle(t.Context(), belay.Settlement{Lease: a.Lease, Op: belay.OpID(a.Lease.Secret),
			Outcome: outcome}); err != nil {
			t.Fatal(err)
		}
	}
}

// Rule: each timeout of an execution or a run is counted under its own label.
func TestEachTimeoutHasItsOwnLabel(t *testing.T) {
	second := belay.Duration(time.Second)
	for kind, p := range map[string]belay.Policy{
		"total": {Timeout: 2 * second, CancelGrace: second},
		"run":   {RunTimeout: 2 * second, CancelGrace: second, MaxAttempts: 1},
		"idle":  {IdleTimeout: 2 * second, MaxAttempts: 1},
		"start": {StartTimeout: second},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, m := observed(t)
			defer e.Close()
			id := submit(t, e, belay.Submission{Workflow: "w", Policy: p})[0].ID
			if kind != "start" {
				claim(t, e, open(t, e, time.Hour, "w"), 1, 1)
			}
			time.Sleep(5 * time.Second)
			if x, err := e.Execution(t.Context(), id); err != nil || x.State != belay.Failed {
				t.Fatalf("%s: %+v, %v", kind, x, err)
			}
			got := map[string]float64{}
			for name, v := range scrape(t, m) {
				if v != 0 && strings.HasPrefix(name, "belay_execution_timeouts_total") {
					got[name] = v
				}
			}
			if diff := cmp.Diff(map[string]float64{`belay_execution_timeouts_total{kind="` + kind + `"}`: 1},
				got); diff != "" {
				t.Errorf("%s: %s", kind, diff)
			}
		})
	}
}

// Rule: the number of label values is bounded for any number of workflow names. Executions of
// further workflows are counted together, so that every execution is counted.
func TestLabelsAreBounded(t *testing.T) {
	m := telemetry.New("", "")
	const names = 5 * telemetry.MaxWorkflows
	for i := range names {
		m.Observe(&engine.Observation{Submitted: []engine.SubmittedOne{
			{Workflow: fmt.Sprint("w", i), Trigger: belay.Trigger(fmt.Sprint("t", i))},
			{Workflow: "w0", Trigger: belay.TriggerManual},
		}})
	}
	series, sum := 0, 0.0
	for name, v := range scrape(t, m) {
		if strings.HasPrefix(name, "belay_executions_submitted_total") {
			series++
			sum += v
		}
	}
	if series > telemetry.MaxWorkflows+2 || sum != 2*names {
		t.Errorf("%d series with %v in all, want at most %d with %d", series, sum, telemetry.MaxWorkflows+2, 2*names)
	}
}

// Rule: a scrape within seconds of another scrape does not count the contents of the store again.
func TestTheStoreIsNotReadForEveryScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := observed(t)
		defer e.Close()
		pending := `belay_executions{state="pending"}`
		before := scrape(t, m)[pending]
		submit(t, e, belay.Submission{Workflow: "w"})
		if n := scrape(t, m)[pending]; n != before {
			t.Errorf("counted again at once: %v", n)
		}
		time.Sleep(6 * time.Second)
		if n := scrape(t, m)[pending]; n != before+1 {
			t.Errorf("%v executions after a while, want %v", n, before+1)
		}
	})
}

// stuck is a source whose Tally does not answer until repaired is set.
type stuck struct{ repaired bool }

func (s *stuck) Tally(ctx context.Context) (engine.Tally, error) {
	if s.repaired {
		return engine.Tally{}, nil
	}
	<-ctx.Done()
	return engine.Tally{}, ctx.Err()
}

// counted is a source with a fixed tally.
type counted struct{ tally engine.Tally }

func (c counted) Tally(context.Context) (engine.Tally, error) { return c.tally, nil }

// Rule: the label reason of dead letters has a fixed set of values. Reasons that a newer server has
// written to the same store are counted as other.
func TestReasonsAreAClosedSet(t *testing.T) {
	var tally engine.Tally
	tally.DeadLetters = map[string]int64{"lost": 2, "bored": 3, "tired": 4}
	m := telemetry.New("1.2.3", "abc")
	m.Watch(counted{tally})
	got := make(map[string]float64)
	for name, n := range scrape(t, m) {
		if strings.HasPrefix(name, "belay_dead_letters") {
			got[name] = n
		}
	}
	want := map[string]float64{
		`belay_dead_letters{reason="lost"}`: 2, `belay_dead_letters{reason="other"}`: 7,
		`belay_dead_letters{reason="timeout"}`:     0,
		`belay_dead_letters{reason="max_retries"}`: 0, `belay_dead_letters{reason="permanent_error"}`: 0,
		`belay_dead_letters{reason="no_worker"}`: 0, `belay_dead_letters{reason="circuit_breaker"}`: 0,
		`belay_dead_letters{reason="expired"}`: 0, `belay_dead_letters{reason="manual"}`: 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Rule: after a count of the store's contents has failed, the metrics soon count them again, so
// that the metrics do not report an outage long after it has ended.
func TestAnOutageOfTheStoreIsOverSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := telemetry.New("1.2.3", "abc"), &stuck{}
		m.Watch(s)
		if n := scrape(t, m)["belay_store_readable"]; n != 0 {
			t.Errorf("a store that does not answer: %v", n)
		}
		s.repaired = true
		time.Sleep(time.Minute)
		if n := scrape(t, m)["belay_store_readable"]; n != 1 {
			t.Errorf("a minute after its repair: %v", n)
		}
	})
}

// Rule: promtool check metrics finds no problem in the names, types and descriptions of the metrics.
func TestPromtoolFindsNoProblem(t *testing.T) {
	e, m := observed(t)
	defer e.Close()
	submit(t, e, belay.Submission{Workflow: "w"})
	claim(t, e, open(t, e, time.Hour, "w"), 1, 1)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	problems, err := promlint.New(w.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// broken is a Broker with an alarm and dead letters.
type broken struct{}

func (broken) State() broker.State {
	return broker.State{
		Publish: broker.Link{Connected: true, Blocked: "low on memory"}, Consume: broker.Link{Connected: true},
	}
}
func (broken) Counters() broker.Counters {
	return broker.Counters{Published: 5, Dropped: map[broker.Reason]int64{broker.Garbage: 2}}
}
func (broken) Depth(context.Context) (int, error) { return 7, nil }

// The metrics of the broker say whether it can be used and what happened to messages.
func TestTheMetricsShowTheBroker(t *testing.T) {
	m := telemetry.New("1", "abc")
	m.Dispatch(broken{})
	got := scrape(t, m)
	for series, want := range map[string]string{
		`belay_broker_connected{connection="publish"}`:    "1",
		`belay_broker_blocked`:                            "1",
		`belay_broker_dead_letter_depth`:                  "7",
		`belay_broker_messages_total{event="published"}`:  "5",
		`belay_broker_messages_total{event="handled"}`:    "0",
		`belay_broker_dropped_total{reason="garbage"}`:    "2",
		`belay_broker_dropped_total{reason="unreadable"}`: "0",
	} {
		if s := got[series]; fmt.Sprint(s) != want {
			t.Errorf("%s is %v, want %s", series, s, want)
		}
	}
}

// Rule: docs/configuration.md lists all metrics, and only metrics that exist.
func TestThePageNamesTheMetrics(t *testing.T) {
	e, m := observed(t)
	defer e.Close()
	submit(t, e, belay.Submission{Workflow: "w", Policy: belay.Policy{StartTimeout: belay.MinTTL}})
	m.Observe(&engine.Observation{ // the engine reports a submission after its answer, perhaps after the scrape
		Submitted: []engine.SubmittedOne{{Workflow: "w", Trigger: belay.TriggerManual}},
		Finished:  []engine.FinishedOne{{State: belay.Succeeded}},
		Runs:      []engine.RunOne{{Outcome: belay.OutcomeSucceeded}},
		Costs:     []engine.CostOne{{Workflow: "w", Cost: 1, Usage: belay.ModelUsage{InputTokens: 1, Money: 1}}},
	})
	for _, c := range []belay.GateChange{
		{Gate: "workflow:w", Action: belay.GateSetLimit, Max: 3}, {Gate: "target:api", Action: belay.GateForceOpen},
	} {
		if _, err := e.ChangeGate(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	m.Request("GET", "/healthz", 200, time.Millisecond)
	m.Dispatch(broken{})
	m.Traces(&trace.Tracer{})
	there := make(map[string]bool)
	histogram := regexp.MustCompile(`_(bucket|sum|count)$`)
	for name := range scrape(t, m) {
		name, _, _ = strings.Cut(name, "{")
		if name = histogram.ReplaceAllString(name, ""); strings.HasPrefix(name, "belay_") {
			there[name] = true
		}
	}
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, n := range regexp.MustCompile("`(belay_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		named[n[1]] = true
	}
	if diff := cmp.Diff(there, named); diff != "" {
		t.Errorf("- exists, + on the page\n%s", diff)
	}
}

// Rule: HTTP requests are counted by route and status. Requests that may wait are counted, but
// their time is not measured.
func TestRequestsAreCounted(t *testing.T) {
	m := telemetry.New("1", "abc")
	m.Request("GET", "/v1/executions/{id}", 200, time.Millisecond)
	m.Request("GET", "/v1/executions/{id}", 404, time.Millisecond)
	m.Request("GET", "/v1/executions/{id}/events", 200, 0)
	got := scrape(t, m)
	for name, want := range map[string]float64{
		`belay_http_requests_total{code="200",method="GET",route="/v1/executions/{id}"}`:        1,
		`belay_http_requests_total{code="404",method="GET",route="/v1/executions/{id}"}`:        1,
		`belay_http_requests_total{code="200",method="GET",route="/v1/executions/{id}/events"}`: 1,
		`belay_http_request_seconds_count{method="GET",route="/v1/executions/{id}"}`:            2,
		`belay_http_request_seconds_count{method="GET",route="/v1/executions/{id}/events"}`:     0,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// The slots of schedules are counted by their outcomes; missed slots count one by one.
func TestSlotsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := observed(t)
		defer e.Close()
		if _, err := e.PutSchedule(t.Context(), belay.SchedulePut{Schedule: belay.Schedule{
			Name: "s", Every: belay.Duration(time.Minute), Execution: belay.Submission{Workflow: "w"},
		}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(210 * time.Second) // the first execution has not ended, so that the others are skipped
		got := scrape(t, m)
		for outcome, want := range map[string]float64{"started": 1, "skipped": 2, "missed": 0} {
			if n, there := got[`belay_schedule_slots_total{outcome="`+outcome+`"}`]; n != want || !there {
				t.Errorf("%v slots are %s, want %v", n, outcome, want)
			}
		}
	})
}
