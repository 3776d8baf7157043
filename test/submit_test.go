package test

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: belay submit stores a submission unchanged and prints only the execution's id. A second
// submission with the same key finds the same execution (guarantee G9).
func TestSubmit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := os.WriteFile(p.path("in.json"), []byte(" {\"pr\": 17}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"submit", "review", "--input", "@" + p.path("in.json"), "--key", "pr-17", "--queue", "q", "--priority", "7",
		"--label", "team=a",
		"--worker-label", "gpu=yes", "--due", "1h", "--timeout", "2h", "--attempts", "5", "--on-lost", "fail",
	}
	first := p.belay(args...).want(0)
	e := p.execution(p.only().ID)
	if first.out != e.ID.String()+"\n" || first.err != "" {
		t.Errorf("submit prints more than the id\n%s", first)
	}
	in := string(e.Input)
	if e.Workflow != "review" || e.Queue != "q" || e.Priority != 7 || e.Labels["team"] != "a" ||
		e.WorkerLabels["gpu"] != "yes" ||
		e.State != belay.Pending || e.DueAt.Sub(e.CreatedAt) < 50*time.Minute || in != `{"pr": 17}` &&
		in != `{"pr":17}` {
		t.Errorf("%+v with input %s", e, in)
	}
	if pol := e.Policy; pol == nil || pol.MaxAttempts != 5 || pol.OnLost != belay.Fail || pol.Timeout.D().Hours() != 2 {
		t.Errorf("policy %+v", pol)
	}
	p.belay("submit", "review", "--input", `{"pr":17}`, "--key", "pr-17").want(belay.CodeIdempotencyMismatch.Exit())
	var got belay.Submitted
	one := p.belay("submit", "v", "--key", "k", "-o", "json").want(0)
	decode(t, one.out, &got)
	if second := p.belay("submit", "v", "--key", "k").want(0); second.out != got.ID.String()+"\n" {
		t.Errorf("G9: the same key is another execution\n%s", second)
	}
	alike := []string{"submit", "price", "--idempotency", "content", "--input"}
	decode(t, p.belay(append(alike, `{"a": 1, "b": 2}`, "-o", "json")...).want(0).out, &got)
	if second := p.belay(append(alike, `{"b": 2.0, "a": 1}`)...).want(0); second.out != got.ID.String()+"\n" {
		t.Errorf("G9: the same content is another execution\n%s", second)
	}
	if e := p.execution(got.ID); len(e.InputsHash) != 64 || len(e.ConfigHash) != 64 {
		t.Errorf("hashes of %+v", e)
	}
	p.belay("cancel", got.ID.String()).want(0)
	if next := p.belay(append(alike, `{"a": 1, "b": 2}`)...).want(0); next.out == got.ID.String()+"\n" {
		t.Errorf("a cancelled execution answers\n%s", next)
	}
	x := p.belay("submit", "loop", "--external").want(0)
	out, err := belay.ParseExecutionID(strings.TrimSpace(x.out))
	if err != nil {
		t.Fatal(err)
	}
	if e := p.execution(out); !e.External || e.Policy == nil || e.Policy.OnLost != belay.Fail {
		t.Errorf("from outside: %+v", e)
	}
}

// Rule: belay refuses an invalid submission, and stores nothing of it.
func TestBadSubmissionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []refusal{
		{"no workflow", []string{"submit"}, codeUsage, "workflow"},
		{"two workflows", []string{"submit", "a", "b"}, codeUsage, "workflow"},
		{"input that is no JSON", []string{"submit", "w", "--input", "{"}, codeInvalid, "JSON"},
		{"input file that does not exist", []string{"submit", "w", "--input", "@/nowhere/x"}, codeCannot, "/nowhere/x"},
		{"label without a value", []string{"submit", "w", "--label", "a"}, codeUsage, "name=value"},
		{"due never", []string{"submit", "w", "--due", "tomorrow"}, codeUsage, "tomorrow"},
		{"on lost what", []string{"submit", "w", "--on-lost", "cry"}, codeInvalid, "on_lost"},
		{"idempotency by what", []string{"submit", "w", "--idempotency", "key"}, codeInvalid, "content"},
		{"a key and a content", []string{
			"submit", "w", "--idempotency", "content", "--key", "k",
		}, codeInvalid, "exclude"},
		{"priority beyond", []string{"submit", "w", "--priority", "1000"}, codeInvalid, "100"},
		{"a command for another workflow", []string{"submit", "w", "--", "true"}, codeUsage, "command"},
		{"a command and an input", []string{"submit", "command", "--input", "{}", "--", "true"}, codeUsage, "not both"},
		{"no command", []string{"submit", "command", "--repo", "none", "--"}, codeInvalid, "no command"},
		{"key file that others can read", []string{
			"submit", "w", "--server", "http://127.0.0.1:1", "--key-file", os.Args[0],
		}, 77, "chmod 600"},
		{"server that is none", []string{"submit", "w", "--server", "127.0.0.1:1"}, codeInvalid, "http://"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			p := newPlace(t)
			r := p.belay(c.args...)
			if r.code != c.code {
				t.Errorf("exit code %d, want %d\n%s", r.code, c.code, r)
			}
			one(t, r, c.says)
			if all := p.executions(); len(all) != 0 {
				t.Errorf("the refused execution is stored: %+v", all[0])
			}
		})
	}
}

// Rule: submit --wait prints the output of the execution, and its exit code says how the execution
// ended, whichever worker runs the execution and wherever it was submitted.
func TestSubmitAndWait(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve("--insecure-no-auth")
	w := p.start(p.command("worker", "--server", a.url))
	for _, at := range [][]string{nil, {"--server", a.url}} { // through the socket of the data directory, and over TCP
		on := func(args ...string) result {
			t.Helper()
			return p.belay(append(append([]string{}, at...), args...)...)
		}
		r := on("submit", "command", "--wait", "--", "sh", "-c", "echo hello; exit 3").want(3)
		var out struct {
			ExitCode int `json:"exit_code"`
		}
		decode(t, r.out, &out)
		if out.ExitCode != 3 {
			t.Errorf("the execution's output is not printed\n%s", r)
		}
		id := idOf(t, r.err).String()
		if r := on("logs", id).want(0); r.out != "hello\n" {
			t.Errorf("logs\n%s", r)
		}
		if r := on("get", id).want(0); !strings.Contains(r.out, "failed") {
			t.Errorf("get\n%s", r)
		}
		if r := on("watch", id).want(0); !strings.Contains(r.out, "failed") {
			t.Errorf("watch\n%s", r)
		}
		on("explain", id).want(0)
		on("doctor").want(0)
		if r := on("submit", "command", "--wait", "-o", "json", "--", "true").want(0); !json.Valid([]byte(r.out)) {
			t.Errorf("no JSON\n%s", r)
		}
		x := p.start(p.command(append(append([]string{}, at...), "submit", "nobody-knows", "--wait")...))
		x.says("ex_")
		on("cancel", idOf(t, x.err.String()).String()).want(0)
		x.wait(patience).want(130)
	}
	if r := p.belay("workers", "ls", "--server", a.url).want(0); strings.Count(r.out, "open") != 1 {
		t.Errorf("there should be one worker\n%s", r)
	}
	var workers []belay.Worker
	decode(t, p.belay("workers", "ls", "-o", "json").want(0).out, &workers)
	p.belay("workers", "drain", workers[0].ID.String()).want(0)
	w.wait(patience).want(0)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	p.clean()
}

// Rule: belay run --server keeps its execution on the server. Everything else is the same as
// without --server: the command runs on the user's machine with live output, and the same command
// line with its key continues the execution.
func TestRunOnAServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	elsewhere := p.data
	server, a := p.serve()
	p.data = p.path("mine")
	args := []string{"run", "--server", a.url, "--repo", "none", "--key", "k", "--step", "a=echo one", "--step",
		"b=echo two; test -e '" + p.path("free") + "'"}
	r := p.belay(args...).want(1)
	if r.out != "one\ntwo\n" {
		t.Errorf("output\n%s", r)
	}
	id := idOf(t, r.err).String()
	p.belay("retry", id, "--server", a.url).want(0)
	if err := os.WriteFile(p.path("free"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.belay(args...).want(0).saying("goes on", "step a is done already")
	if len(p.executions()) != 0 {
		t.Error("the execution is stored in the local data directory")
	}
	p.data = elsewhere
	if e := p.only(); e.State != belay.Succeeded {
		t.Errorf("on the server the execution is %s", e.State)
	}
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	p.clean()
}
