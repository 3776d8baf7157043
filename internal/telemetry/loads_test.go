package telemetry_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/telemetry"
	"github.com/belaydev/belay/internal/trace"
)

// with returns the metrics whose names begin with a text.
func with(all map[string]float64, prefixes ...string) map[string]float64 {
	some := make(map[string]float64)
	for name, v := range all {
		for _, p := range prefixes {
			if strings.HasPrefix(name, p) {
				some[name] = v
			}
		}
	}
	return some
}

// Rule: the metrics tell for each queue the due and the owned executions and the longest wait for a worker. Executions
// that wait at a gate count at the gate. A gate that an operator has paused is not open.
func TestQueuesAndGatesHaveTheExpectedValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := observed(t)
		defer e.Close()
		limited := belay.Submission{Workflow: "a"}
		limited.Concurrency = &belay.Concurrency{Name: "x", Max: 1}
		submit(t, e, limited, limited, limited, belay.Submission{Workflow: "a"})
		claim(t, e, open(t, e, time.Hour, "a"), 1, 2)
		later := belay.Submission{Workflow: "b", Queue: "quiet", DueAt: time.Now().Add(time.Hour)}
		submit(t, e, later, belay.Submission{Workflow: "b", Queue: "full"})
		for _, c := range []belay.GateChange{
			{Gate: "queue:shut", Action: belay.GatePause}, {Gate: "target:api", Action: belay.GateForceOpen},
		} {
			if _, err := e.ChangeGate(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		submit(t, e, belay.Submission{Workflow: "b", Queue: "shut"})
		time.Sleep(time.Minute)
		submit(t, e, belay.Submission{Workflow: "b", Queue: "full"})
		want := map[string]float64{
			`belay_queue_due{queue="default"}`: 0, `belay_queue_running{queue="default"}`: 2,
			`belay_queue_oldest_due_seconds{queue="default"}`: 0,
			`belay_queue_due{queue="full"}`:                   2, `belay_queue_running{queue="full"}`: 0,
			`belay_queue_oldest_due_seconds{queue="full"}`: 60,
			`belay_queue_due{queue="quiet"}`:               0, `belay_queue_running{queue="quiet"}`: 0,
			`belay_queue_oldest_due_seconds{queue="quiet"}`: 0,
			`belay_queue_due{queue="shut"}`:                 1, `belay_queue_running{queue="shut"}`: 0,
			`belay_queue_oldest_due_seconds{queue="shut"}`: 0, // a pause is no wait for a worker
			`belay_gate_held{gate="limit:x"}`:              1, `belay_gate_waiting{gate="limit:x"}`: 2,
			`belay_gate_limit{gate="limit:x"}`: 1, `belay_gate_open{gate="limit:x"}`: 0,
			`belay_gate_held{gate="queue:shut"}`: 0, `belay_gate_waiting{gate="queue:shut"}`: 0,
			`belay_gate_open{gate="queue:shut"}`: 0,
			`belay_gate_held{gate="target:api"}`: 0, `belay_gate_waiting{gate="target:api"}`: 0,
			`belay_gate_open{gate="target:api"}`:                  0,
			`belay_breaker_state{state="open",target="api"}`:      1,
			`belay_breaker_state{state="closed",target="api"}`:    0,
			`belay_breaker_state{state="half_open",target="api"}`: 0,
		}
		if diff := cmp.Diff(want, with(scrape(t, m), "belay_queue", "belay_gate", "belay_breaker")); diff != "" {
			t.Error(diff)
		}
	})
}

// Rule: hostile names of queues, workflows and limits neither break a scrape nor make it large, and no execution is
// missing in the sums. In particular the name other does not collide with the sum of the names without a label.
func TestHostileNamesDoNotBreakAScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := observed(t)
		defer e.Close()
		names := []string{"other", `"} 1`, `\`, "{}", "🦀", " ", strings.Repeat("é", belay.MaxName/2)}
		for i := range 2 * store.MaxTallied {
			names = append(names, fmt.Sprintf(`x"%d`, i))
		}
		for _, n := range names {
			submit(t, e, belay.Submission{
				Workflow: n, Queue: n, Gates: belay.Gates{Concurrency: &belay.Concurrency{Name: n, Max: 1}},
			}, belay.Submission{
				Workflow: n, Queue: n, Gates: belay.Gates{Concurrency: &belay.Concurrency{Name: n, Max: 1}},
			})
		}
		time.Sleep(time.Second)
		all := scrape(t, m)
		series, sum := make(map[string]int), make(map[string]float64)
		for name, v := range all {
			metric, _, _ := strings.Cut(name, "{")
			series[metric]++
			sum[metric] += v
		}
		for _, metric := range []string{"belay_queue_due", "belay_executions_submitted_total"} {
			if sum[metric] != float64(2*len(names)) || series[metric] > store.MaxTallied+1 {
				t.Errorf("%s: %d series with %v in all, want %d", metric, series[metric], sum[metric], 2*len(names))
			}
		}
		if all[`belay_queue_due{queue="other"}`] < float64(2*(len(names)-store.MaxTallied)) {
			t.Errorf("others: %v", all[`belay_queue_due{queue="other"}`])
		}
		if n := series["belay_gate_held"]; n > store.MaxTallied+1 {
			t.Errorf("%d gates", n)
		}
	})
}

// Rule: durations are measured by workflow, for executions from the submission to the end, and for each run from its
// begin. Costs are counted once, although the cost of a parent contains that of its children. A repeated request
// costs nothing more.
func TestDurationsAndCostsByWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := observed(t)
		defer e.Close()
		id := submit(t, e, belay.Submission{Workflow: "parent", Policy: belay.Policy{MaxAttempts: 2}})[0].ID
		time.Sleep(2 * time.Second)
		w := open(t, e, time.Hour, "parent", "child")
		parent := claim(t, e, w, 1, 1)[0].Lease
		time.Sleep(3 * time.Second)
		save := belay.Save{
			Lease: parent, Op: belay.OpID{1}, Kind: belay.KindStep, Key: "s", CostTokens: belay.CostOf(5),
		}
		for _, save.Repeat = range []bool{false, true} {
			if _, err := e.Save(t.Context(), save); err != nil {
				t.Fatal(err)
			}
		}
		submit(t, e, belay.Submission{
			ID: belay.ChildID(id, 1, "c"), Workflow: "child", Parent: &parent, ParentKey: "c",
		})
		child := claim(t, e, w, 2, 1)[0].Lease
		end := func(l belay.Lease, o belay.Outcome, op byte, cost belay.Cost) {
			t.Helper()
			s := belay.Settlement{Lease: l, Op: belay.OpID{op}, Outcome: o, CostTokens: cost}
			if o == belay.OutcomeFailed {
				s.Failure = &belay.Failure{Message: "m"}
			}
			if err := e.Settle(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		end(child, belay.OutcomeSucceeded, 2, 12_500) // one token and a quarter
		end(parent, belay.OutcomeFailed, 3, 0)
		time.Sleep(time.Hour) // the retry is due
		again := claim(t, e, w, 3, 1)[0].Lease
		time.Sleep(time.Second)
		end(again, belay.OutcomeSucceeded, 4, belay.CostOf(2))
		if x, err := e.Execution(t.Context(), id); err != nil || x.CostTokens != belay.CostOf(8)+2_500 {
			t.Fatalf("%+v, %v", x, err)
		}
		got := scrape(t, m)
		for name, want := range map[string]float64{
			`belay_cost_tokens_total{workflow="parent"}`:                         7,
			`belay_cost_tokens_total{workflow="child"}`:                          1.25,
			`belay_run_seconds_sum{outcome="failed",workflow="parent"}`:          4,
			`belay_run_seconds_sum{outcome="succeeded",workflow="parent"}`:       1,
			`belay_run_seconds_count{outcome="succeeded",workflow="parent"}`:     1,
			`belay_run_seconds_sum{outcome="succeeded",workflow="child"}`:        1,
			`belay_execution_seconds_count{state="succeeded",workflow="child"}`:  1,
			`belay_execution_seconds_sum{state="succeeded",workflow="child"}`:    1,
			`belay_execution_seconds_count{state="succeeded",workflow="parent"}`: 1,
			`belay_execution_seconds_sum{state="succeeded",workflow="parent"}`:   3607,
		} {
			if v, there := got[name]; v != want || !there {
				t.Errorf("%s is %v (exists: %t), want %v", name, v, there, want)
			}
		}
	})
}

// Rule: the connections of exchanges and queue triggers have metrics, also in a server that dispatches nothing, from
// the first attempt to connect.
func TestConnectionsToRabbitMQ(t *testing.T) {
	m := telemetry.New("1", "abc")
	var triggers, exchanges broker.Link
	m.Link("triggers", func() broker.Link { return triggers })
	m.Link("exchanges", func() broker.Link { return exchanges })
	check := func(want map[string]float64) {
		t.Helper()
		if diff := cmp.Diff(want, with(scrape(t, m), "belay_broker")); diff != "" {
			t.Error(diff)
		}
	}
	check(map[string]float64{})
	triggers.Err, exchanges.Connected = fmt.Errorf("refused"), true
	check(map[string]float64{
		`belay_broker_connected{connection="triggers"}`: 0, `belay_broker_connected{connection="exchanges"}`: 1,
	})
}

// Rule: if the server makes traces and the scraper accepts OpenMetrics, the histograms of waits and durations have
// exemplars with the ids of traces. An execution whose submitter is not sampled has none.
func TestExemplarsLeadToTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := observed(t)
		defer e.Close()
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
		m.Traces(trace.New(trace.Options{Getenv: func(name string) string { return env[name] }}))
		const sampled, not = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"
		submit(t, e,
			belay.Submission{Workflow: "a", Trace: belay.Trace{Parent: "00-" + sampled + "-b7ad6b7169203331-01"}},
			belay.Submission{Workflow: "b", Trace: belay.Trace{Parent: "00-" + not + "-b7ad6b7169203331-00"}})
		settle(t, e, claim(t, e, open(t, e, time.Hour, "a", "b"), 1, 2))
		synctest.Wait()
		answer := func(accept string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			m.Handler().ServeHTTP(w, r)
			return w
		}
		plain := answer("text/plain")
		if strings.Contains(plain.Body.String(), sampled) {
			t.Error("the old format has exemplars, which its readers do not understand")
		}
		open := answer("application/openmetrics-text; version=1.0.0")
		if kind := open.Header().Get("Content-Type"); !strings.HasPrefix(kind, "application/openmetrics-text") {
			t.Errorf("the type is %s", kind)
		}
		if text := open.Body.String(); !strings.HasSuffix(text, "# EOF\n") || strings.Contains(text, not) {
			t.Errorf("the end is missing, or a trace that nobody records is there:\n%s", text)
		}
		found := make(map[string]bool)
		for lines := bufio.NewScanner(open.Body); lines.Scan(); {
			if name, exemplar, has := strings.Cut(lines.Text(), " # "); has {
				metric, _, _ := strings.Cut(name, "{")
				found[metric] = true
				if !strings.HasPrefix(exemplar, `{trace_id="`+sampled+`"} `) {
					t.Errorf("%s: %s", name, exemplar)
				}
			}
		}
		want := map[string]bool{
			"belay_schedule_to_start_seconds_bucket": true, "belay_execution_seconds_bucket": true,
			"belay_run_seconds_bucket": true,
		}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Error(diff)
		}
	})
}
