package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// meteredAgent is an agent that calls a model until the model says that it has finished, and writes its messages, and
// at the end its cost, as Claude Code does. Each message is written twice.
const meteredAgent = `
import json, sys, urllib.request
total, money = [0, 0], 0.0
def say(x): print(json.dumps(x), flush=True)
say({"type": "system", "subtype": "init", "session_id": "s"})
while True:
    got = json.load(urllib.request.urlopen(sys.argv[1] + "/" + sys.argv[2].split()[0], timeout=60))
    if got.get("over"): break
    u = got["usage"]
    total[0] += u["input_tokens"]; total[1] += u["output_tokens"]; money += got["usd"]
    for n in (1, u["output_tokens"]):
        say({"type": "assistant", "message": {"id": got["id"], "model": "m", "usage": dict(u, output_tokens=n),
            "content": [{"type": "text", "text": "x"}]}})
say({"type": "result", "subtype": "success", "result": "done", "num_turns": 1, "total_cost_usd": money,
    "usage": {"input_tokens": total[0], "output_tokens": total[1]}})
`

// meteredModel is a stand-in for a model. It answers each job with answers, then blocks until it is released, and then
// says that the work is over. It records all usage that it has reported.
type meteredModel struct {
	mu      sync.Mutex
	calls   map[string]int
	in, out map[string]int64
	blocked map[string]int
	release chan struct{}
}

func (m *meteredModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	job := strings.TrimPrefix(r.URL.Path, "/")
	m.mu.Lock()
	n := m.calls[job]
	m.calls[job]++
	if n%4 == 3 {
		m.blocked[job]++
		m.mu.Unlock()
		select {
		case <-m.release:
			fmt.Fprint(w, `{"over": true}`)
		case <-r.Context().Done():
		}
		return
	}
	in, out := int64(100+n), int64(10+n)
	m.in[job], m.out[job] = m.in[job]+in, m.out[job]+out
	m.mu.Unlock()
	fmt.Fprintf(w, `{"id": "msg_%s_%d", "usd": 0.25, "usage": {"input_tokens": %d, "output_tokens": %d}}`, job, n, in, out)
}

// Rule: the usage of jobs, by job, label and day, is what the model has reported, although the server is killed twice
// while the agents work. The money of killed runs is unknown and counts as unpriced tokens.
func TestUsageAgreesWithTheModelOverKills(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m := &meteredModel{
		calls: make(map[string]int), in: make(map[string]int64), out: make(map[string]int64),
		blocked: make(map[string]int), release: make(chan struct{}),
	}
	model := httptest.NewServer(m)
	defer model.Close()
	argv, err := json.Marshal([]string{program(t, "python3"), "-c", meteredAgent, model.URL, "{{prompt}}"})
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"BELAY_AGENT_COMMAND=" + string(argv)}
	a := p.assisted(env)
	ids := make(map[string]string)
	for _, name := range []string{"one", "two"} {
		ids[name] = a.ask(name+" job\nmore", `"labels":{"team":"`+name+`"}`)
	}
	for kills := 1; ; kills++ {
		for name, id := range ids {
			until(t, "the model of "+name+" waits", func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				return m.blocked[name] == kills
			})
			last := fmt.Sprintf(`"output_tokens":%d`, outputOf(kills))
			until(t, "the usage of "+name+" is stored", func() bool {
				return strings.Contains(p.belay("--server", a.url, "logs", id, "--name", "usage").out, last)
			})
		}
		if kills == 3 {
			break
		}
		a = a.killAndRestart(env)
	}
	close(m.release)
	var in, out int64
	for name, id := range ids {
		got := a.wantEnd(id, "completed", 0.0)
		if got.at("usage", "input_tokens") != float64(m.in[name]) ||
			got.at("usage", "output_tokens") != float64(m.out[name]) {
			t.Errorf("job %s used %v, and the model reported %d and %d", name, got.at("usage"), m.in[name], m.out[name])
		}
		in, out = in+m.in[name], out+m.out[name]
		for _, by := range []string{"by=job&label=team%3D" + name, "label=team%3D" + name} {
			wantUsage(t, a.want(http.StatusOK, "GET", "/v1/usage?"+by, ""), m.in[name], m.out[name], 0.75)
		}
		x := a.want(http.StatusOK, "GET", "/v1/executions/"+id, "")
		if x.at("cost_tokens") != float64(m.in[name]+m.out[name]) {
			t.Errorf("the cost is %v", x.at("cost_tokens"))
		}
		if x.at("labels", "prompt") != name+" job" {
			t.Errorf("labels %v", x.at("labels"))
		}
	}
	for _, by := range []string{"", "?by=job", "?by=label:team", "?by=workflow"} {
		wantUsage(t, a.want(http.StatusOK, "GET", "/v1/usage"+by, ""), in, out, 1.5)
	}
	metrics := a.want(http.StatusOK, "GET", "/metrics", "").text
	if !strings.Contains(metrics, `belay_usage_tokens_total{direction="input",workflow="agent"}`) {
		t.Error("the metrics have no tokens")
	}
	a.stop()
	p.sound()
}

// outputOf returns the output tokens of the run before the n-th block of a job.
func outputOf(n int) (sum int) {
	for i := 4 * (n - 1); i < 4*n-1; i++ {
		sum += 10 + i
	}
	return sum
}

func wantUsage(t *testing.T, got answer, in, out int64, usd float64) {
	t.Helper()
	if got.at("total", "input_tokens") != float64(in) || got.at("total", "output_tokens") != float64(out) ||
		got.at("total", "cost_usd") != usd {
		t.Errorf("%s, and the model reported %d, %d", got.text, in, out)
	}
}

// Rule: a job that exceeds its max_cost is ended with an error that says so. A reply to it has the same limit, or
// one of its own.
func TestAJobEndsAtItsMaxCost(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m := &meteredModel{
		calls: make(map[string]int), in: make(map[string]int64), out: make(map[string]int64),
		blocked: make(map[string]int), release: make(chan struct{}),
	}
	model := httptest.NewServer(m)
	defer model.Close()
	argv, err := json.Marshal([]string{program(t, "python3"), "-c", meteredAgent, model.URL, "{{prompt}}"})
	if err != nil {
		t.Fatal(err)
	}
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + string(argv)}, "--agent-repo", p.repository())
	id := a.ask("one", `"max_cost":{"tokens":300}`)
	got := a.ended(id)
	if got.string("status") != "failed" ||
		!strings.Contains(got.string("error"), " tokens, more than its max_cost of 300") {
		t.Errorf("%s", got.text)
	}
	// The agent is ended between the two reports of its last message, of which the second has all output.
	used := a.want(http.StatusOK, "GET", "/v1/usage", "")
	if tokens, _ := used.at("total", "unpriced_tokens").(float64); tokens < 325 || tokens > 336 {
		t.Errorf("%s", used.text)
	}
	r := p.belay("agent", "reply", "--max-tokens", "200", id, "two").want(1)
	if !strings.Contains(r.err+r.out, "more than its max_cost of 200") {
		t.Errorf("%s", r)
	}
	second := regexp.MustCompile(`job (ex_\w+)`).FindStringSubmatch(r.err)[1]
	r = p.belay("agent", "reply", second, "four").want(1)
	if !strings.Contains(r.err+r.out, "more than its max_cost of 200") {
		t.Errorf("a reply does not have the limit of the job that it continues\n%s", r)
	}
	if used := a.want(http.StatusOK, "GET", "/jobs?label=team%3Dweb", ""); used.string("next") != "" ||
		strings.Contains(used.text, "job_id") {
		t.Errorf("%s", used.text)
	}
	r = p.belay("agent", "--max-tokens", "100", "--label", "team=web", "three").want(1)
	if !strings.Contains(r.err+r.out, "more than its max_cost of 100") {
		t.Errorf("%s", r)
	}
	a.want(http.StatusOK, "GET", "/jobs?label=team%3Dweb", "").says(t, `"title":"three"`)
	titles := a.want(http.StatusOK, "GET", "/jobs", "")
	titles.says(t, `"title":"two"`) // and not the title of the job that it continues
	for _, flag := range []string{
		"--max-tokens=-1", "--max-usd=-0.1", "--max-usd=nan", "--max-usd=1e-12", "--label=x",
	} {
		p.belay("agent", flag, "x").want(64)
	}
	for _, bad := range []string{`{}`, `{"tokens":-1}`, `{"usd":-0.5}`, `{"tokens":1e30}`, `"5"`} {
		a.want(http.StatusUnprocessableEntity, "POST", "/execute", `{"prompt":"x","max_cost":`+bad+`}`)
	}
	a.stop()
	p.sound()
}

// Rule: the usage of a killed run counts too if the job continues another that has left neither changes nor the id of
// a conversation.
func TestUsageOfAReplyOverAKill(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const script = `
import json, os, sys, time
def say(x): print(json.dumps(x), flush=True)
run = os.environ["BELAY_TOKEN"]
if sys.argv[1] == "work":
    say({"type": "assistant", "message": {"id": run, "usage": {"input_tokens": 1000, "output_tokens": 10},
        "content": "x"}})
    if run == "1": time.sleep(600)
say({"type": "result", "result": "done"})
`
	argv, err := json.Marshal([]string{program(t, "python3"), "-c", script, "{{prompt}}"})
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"BELAY_AGENT_COMMAND=" + string(argv)}
	a := p.assisted(env, "--agent-repo", p.repository())
	id := a.reply(a.wantEnd(a.ask("nothing"), "completed", 0.0).string("job_id"), "work")
	until(t, "the usage is stored", func() bool {
		return strings.Contains(p.belay("--server", a.url, "logs", id, "--name", "usage").out, "1000")
	})
	a = a.killAndRestart(env, "--agent-repo", p.path("repo"))
	if got := a.wantEnd(id, "completed", 0.0); got.at("usage", "input_tokens") != 2000.0 {
		t.Errorf("%s", got.text)
	}
	a.stop()
}
