package test

import (
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// alerting is the content of a file of alerting rules of Prometheus.
type alerting struct {
	Groups []struct {
		Name  string
		Rules []alertRule
	}
}

type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alertTests is the content of a file of promtool's tests of alerting rules.
type alertTests struct {
	RuleFiles          []string `yaml:"rule_files"`
	EvaluationInterval string   `yaml:"evaluation_interval"`
	Tests              []struct {
		Name, Interval string
		InputSeries    []struct{ Series, Values string } `yaml:"input_series"`
		AlertRuleTest  []struct {
			Alertname string
			EvalTime  string `yaml:"eval_time"`
			ExpAlerts []struct {
				ExpLabels      map[string]string `yaml:"exp_labels"`
				ExpAnnotations map[string]string `yaml:"exp_annotations"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

// strictly decodes a YAML file below deploy/. An unknown key is an error.
func strictly(t *testing.T, name string, into any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(deployFile(t, name)))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// alertRules reads the rules of all files of rules.
func alertRules(t *testing.T) (all []alertRule) {
	t.Helper()
	for _, path := range prometheusFiles(t, "*.rules.yml") {
		var file alerting
		strictly(t, path, &file)
		for _, g := range file.Groups {
			all = append(all, g.Rules...)
		}
	}
	if len(all) < 15 {
		t.Fatalf("only %d rules were found", len(all))
	}
	return all
}

// prometheusFiles lists the files of deploy/prometheus whose names match a pattern.
func prometheusFiles(t *testing.T, pattern string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "deploy", "prometheus", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	for _, path := range paths {
		names = append(names, filepath.Join("prometheus", filepath.Base(path)))
	}
	return names
}

// promSeries maps the name of each metric to its series. A series is a map from the names of its
// labels to their values.
type promSeries map[string][]map[string]string

var (
	promLabel = regexp.MustCompile(`(\w+)\s*(=~|!=|!~|=)\s*"((?:[^"\\]|\\.)*)"`)
	promSet   = regexp.MustCompile(`([a-zA-Z_:][\w:]*)?\{([^}]*)\}`)
)

// parseMetrics reads an answer of /metrics.
func parseMetrics(text string) promSeries {
	all := make(promSeries)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		if i := strings.IndexByte(line, '{'); i >= 0 {
			name, rest = line[:i], line[i:]
		}
		labels := make(map[string]string)
		for _, m := range promLabel.FindAllStringSubmatch(rest, -1) {
			labels[m[1]] = m[3]
		}
		all[name] = append(all[name], labels)
	}
	return all
}

var (
	promName  = regexp.MustCompile(`[a-zA-Z_:][\w:]*`)
	promGroup = regexp.MustCompile(`\bby \(([^)]*)\)`)
	promRange = regexp.MustCompile(`\[[^]]*\]|\boffset \w+`)
)

// unknown lists the metrics, labels and values of labels that an expression of Prometheus uses and
// the server does not have. Prometheus itself adds the metric up, and the labels job and instance
// to all metrics.
func (s promSeries) unknown(expr string) (bad []string) {
	labels := map[string]bool{"job": true, "instance": true}
	bare := promGroup.ReplaceAllString(promRange.ReplaceAllString(promSet.ReplaceAllString(expr, "$1"), ""), "")
	for _, at := range promName.FindAllStringIndex(bare, -1) {
		name, function := bare[at[0]:at[1]], strings.HasPrefix(strings.TrimSpace(bare[at[1]:]), "(")
		if function || name == "up" || name == "or" {
			continue
		}
		if len(s[name]) == 0 {
			bad = append(bad, name)
		}
		for _, series := range s[name] {
			for l := range series {
				labels[l] = true
			}
		}
	}
	for _, set := range promSet.FindAllStringSubmatch(expr, -1) {
		for _, m := range promLabel.FindAllStringSubmatch(set[2], -1) {
			has := func(series map[string]string) bool { return series[m[1]] == m[3] }
			if m[1] != "job" && m[1] != "instance" && (m[2] != "=" || !slices.ContainsFunc(s[set[1]], has)) {
				bad = append(bad, set[1]+"{"+m[0]+"}")
			}
		}
	}
	for _, m := range promGroup.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if l = strings.TrimSpace(l); !labels[l] {
				bad = append(bad, "by ("+l+")")
			}
		}
	}
	return bad
}

// Rule: the alerting rules use only metrics, labels and values of labels that a server with RabbitMQ and a circuit
// breaker has from its start.
func TestTheAlertsUseMetricsOfTheServer(t *testing.T) {
	t.Parallel()
	s := idleBrokerTasks(t)
	s.want(http.StatusOK, "PUT", "/v1/gates/target:api/breaker", `{"state": "open"}`)
	s.counted(`belay_breaker_state{state="open",target="api"}`)
	has := parseMetrics(s.want(http.StatusOK, "GET", "/metrics", "").text)
	for _, r := range alertRules(t) {
		for _, bad := range has.unknown(r.Expr) {
			t.Errorf("%s: the server has no %s", r.Alert, bad)
		}
	}
	for _, wrong := range []string{
		`max by (job) (belay_worker) == 0`, `belay_workers{state="opened"} == 0`, `max by (host) (belay_workers)`,
		`rate(belay_commits_total[5m]) > 0`, `belay_workers{states="open"} offset 1h`, `up == 0 or belay_upp == 0`,
	} {
		if len(has.unknown(wrong)) != 1 {
			t.Errorf("%s: found %q", wrong, has.unknown(wrong))
		}
	}
}

// Rule: docs/operations.md explains each alert with its severity, and no other alert. For each
// alert, promtool has a test in which the alert fires and a test in which it does not. Four alerts
// must keep the thresholds and severities that this test lists.
func TestEachAlertIsExplainedAndTested(t *testing.T) {
	t.Parallel()
	want, exprs := make(map[string]string), make(map[string]string)
	for _, r := range alertRules(t) {
		if want[r.Alert] != "" || r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s: the name is not unique, or a summary or severity is missing", r.Alert)
		}
		want[r.Alert], exprs[r.Alert] = r.Labels["severity"], strings.Join(strings.Fields(r.Expr), " ")
	}
	page := read(t, "../docs/operations.md")
	explained := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (warning|critical) \\|").FindAllStringSubmatch(page, -1) {
		explained[m[1]] = m[2]
	}
	if !maps.Equal(want, explained) {
		t.Errorf("the rules have %v\nthe page explains %v", want, explained)
	}
	for name, r := range map[string][2]string{
		"high_execution_timeout_rate": {"warning", "> 10"}, "no_active_workers": {"critical", "== 0"},
		"dlq_buildup": {"warning", "> 100"}, "stale_executions": {"warning", "> 300"},
	} {
		if want[name] != r[0] || !strings.HasSuffix(exprs[name], r[1]) {
			t.Errorf("%s is %q with the severity %s, want %s with %s", name, exprs[name], want[name], r[1], r[0])
		}
	}
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, path := range prometheusFiles(t, "*.test.yml") {
		var file alertTests
		strictly(t, path, &file)
		for _, test := range file.Tests {
			for _, c := range test.AlertRuleTest {
				fires[c.Alertname] = fires[c.Alertname] || len(c.ExpAlerts) > 0
				silent[c.Alertname] = silent[c.Alertname] || len(c.ExpAlerts) == 0
			}
		}
	}
	for name := range want {
		if !fires[name] || !silent[name] {
			t.Errorf("%s: a test in which it fires: %t, one in which it does not: %t", name, fires[name], silent[name])
		}
	}
}
