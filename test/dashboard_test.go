package test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
)

// dashboard is the part of a dashboard of Grafana that the tests look at.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct{ List []struct{ Expr string } }
	Panels      []dashboardPanel
}

type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Exemplar                  bool
	}
}

// expressions returns the expressions of the dashboard, by the titles of their panels, with values for the variables
// of Grafana.
func (d dashboard) expressions() map[string][]string {
	values := strings.NewReplacer("$job", "belay", "$__rate_interval", "1m", "$__range", "3h")
	all := make(map[string][]string)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], values.Replace(target.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		all["annotations"] = append(all["annotations"], values.Replace(a.Expr))
	}
	return all
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	must(t, json.Unmarshal([]byte(deployFile(t, "grafana/belay.json")), &d))
	if d.UID == "" || len(d.expressions()) < 30 {
		t.Fatalf("%q has only %d expressions", d.UID, len(d.expressions()))
	}
	return d
}

// promtool finds promtool, which make blackbox unpacks.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	if _, err := os.Stat("../bin/promtool"); err != nil {
		t.Fatalf("promtool is needed: %v (scripts/need.sh bin/promtool:prometheus)", err)
	}
	return "../bin/promtool"
}

// Rule: Prometheus can parse every expression of the dashboard. promtool parses expressions only in files of rules, so
// the test makes a rule of each.
func TestPrometheusParsesTheDashboard(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	check := func(all map[string][]string) ([]byte, error) {
		type rule struct{ Record, Expr string }
		var rules []rule
		for _, exprs := range all {
			for _, expr := range exprs {
				rules = append(rules, rule{"r" + strings.Repeat("x", len(rules)), expr})
			}
		}
		text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
		must(t, err)
		path := newPlace(t).path("dashboard.yml")
		must(t, os.WriteFile(path, text, 0o600))
		return exec.CommandContext(t.Context(), tool, "check", "rules", path).CombinedOutput()
	}
	if out, err := check(readDashboard(t).expressions()); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := check(map[string][]string{"wrong": {"sum by (x (up)"}}); err == nil {
		t.Errorf("promtool accepts a wrong expression:\n%s", out)
	}
}

// Rule: a server that has worked has every metric, label and value of a label that the dashboard uses, in the
// histograms also exemplars for the panels that ask for them.
func TestTheDashboardUsesMetricsOfTheServer(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	s := brokerTasks(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"})
	s.work()
	all := s.want(http.StatusOK, "GET", "/metrics", "", "Accept", "application/openmetrics-text").text
	has := parseMetrics(all)
	// Prometheus itself has these two.
	has["up"] = []map[string]string{{"job": "belay"}}
	has["ALERTS"] = []map[string]string{{"alertstate": "firing"}}
	for title, exprs := range d.expressions() {
		for _, expr := range exprs {
			for _, bad := range has.unknown(expr) {
				t.Errorf("%s: the server has no %s", title, bad)
			}
		}
	}
	exemplars := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if !target.Exemplar {
				continue
			}
			exemplars++
			name := promName.FindString(target.Expr[strings.Index(target.Expr, "rate(")+len("rate("):])
			found := false
			for line := range strings.Lines(all) {
				found = found || strings.HasPrefix(line, name+"{") && strings.Contains(line, ` # {trace_id="`)
			}
			if !found {
				t.Errorf("%s: %s has no exemplar", p.Title, name)
			}
		}
	}
	if exemplars < 3 {
		t.Errorf("%d targets ask for exemplars", exemplars)
	}
}

// work makes a server do something of everything that its metrics count.
func (s tasks) work() {
	s.t.Helper()
	ctx := s.t.Context()
	s.want(http.StatusOK, "PUT", "/v1/gates/target:api/breaker", `{"state": "open"}`)
	b, err := client.Dial(ctx, s.url, client.Logger(quiet))
	must(s.t, err)
	defer b.Close()
	limited := belay.Submission{Workflow: "w", Queue: "claimed"}
	limited.Concurrency = &belay.Concurrency{Name: "x", Max: 1}
	_, err = b.Submit(ctx, limited, limited)
	must(s.t, err)
	w, err := b.OpenWorker(ctx, belay.WorkerSpec{
		Name: "w", Queues: []string{"claimed"}, Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 1,
	})
	must(s.t, err)
	var r belay.ClaimReply
	for n := int64(1); len(r.Assignments) == 0; n++ { // a reply may only ask for a heartbeat
		r, err = b.Claim(ctx, belay.ClaimRequest{Worker: w.ID, Number: n, Slots: 1, Wait: patience})
		must(s.t, err)
	}
	lease := r.Assignments[0].Lease
	_, err = b.Save(ctx, belay.Save{
		Lease: lease, Op: belay.OpID{1}, Kind: belay.KindStep, Key: "s", CostTokens: belay.CostOf(3),
	})
	must(s.t, err)
	must(s.t, b.Settle(ctx, belay.Settlement{Lease: lease, Op: belay.OpID{2}, Outcome: belay.OutcomeSucceeded}))
	s.counted(`belay_queue_due{queue="claimed"}`)
}

// counted waits until the server has counted its store again, which it does at most every five seconds, and a metric
// is not 0.
func (s tasks) counted(metric string) {
	s.t.Helper()
	until(s.t, metric, func() bool { return s.metric(metric) != 0 })
}

// Rule: the dashboard fits the grid of Grafana, panels do not overlap, and each panel says what it shows and takes its
// data from the selected source.
func TestTheDashboardIsInOrder(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q: the id is not unique, or the title is missing", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("%s: %+v", p.Title, p)
		}
		g := p.GridPos
		if g.X+g.W > 24 {
			t.Errorf("%s is wider than the grid", p.Title)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s overlaps %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
