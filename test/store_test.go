package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// reader reads the test's data directory, also while another process runs its engine.
func (p *place) reader() *embedded.Reader {
	p.t.Helper()
	r, err := embedded.OpenReader(p.t.Context(), "sqlite:"+p.data)
	if err != nil {
		p.t.Fatalf("read the data directory: %v", err)
	}
	return r
}

// execution returns an execution as the store has it.
func (p *place) execution(id belay.ExecutionID) belay.Execution {
	p.t.Helper()
	r := p.reader()
	defer r.Close()
	e, err := r.Execution(p.t.Context(), id)
	if err != nil {
		p.t.Fatalf("read %s: %v", id, err)
	}
	return e
}

// executions returns all executions, newest first, and no execution if the data directory has no
// database.
func (p *place) executions() []belay.Execution {
	p.t.Helper()
	if _, err := os.Stat(filepath.Join(p.data, "belay.db")); err != nil {
		return nil
	}
	r, err := embedded.OpenReader(p.t.Context(), "sqlite:"+p.data)
	if err != nil && (strings.Contains(err.Error(), "older than") || strings.Contains(err.Error(), "(776)")) {
		// A kill came while the process made the schema: the schema is not there yet, or the
		// transaction that makes it has to be rolled back, which a reader cannot do.
		return nil
	}
	if err != nil {
		p.t.Fatalf("read the data directory: %v", err)
	}
	defer r.Close()
	page, err := r.Executions(p.t.Context(), belay.Filter{Children: true, Limit: 1000})
	if err != nil {
		p.t.Fatalf("list executions: %v", err)
	}
	return page.Executions
}

// only returns the execution of a store that must have exactly one.
func (p *place) only() belay.Execution {
	p.t.Helper()
	all := p.executions()
	if len(all) != 1 {
		p.t.Fatalf("%d executions, want one: %+v", len(all), all)
	}
	return all[0]
}

// history returns the whole history of an execution, and fails the test if the history is not well
// formed.
func (p *place) history(id belay.ExecutionID) []belay.Event {
	p.t.Helper()
	r := p.reader()
	defer r.Close()
	events := events(p.t, r, id)
	wellFormed(p.t, events)
	return events
}

// eventful is a store or an engine from which histories can be read.
type eventful interface {
	Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error)
}

func events(t *testing.T, c eventful, id belay.ExecutionID) []belay.Event {
	t.Helper()
	var all []belay.Event
	for after := int64(0); ; after = all[len(all)-1].Seq {
		more, err := c.Events(t.Context(), belay.EventQuery{Execution: id, After: after, Data: true})
		if err != nil {
			t.Fatalf("events of %s: %v", id, err)
		}
		if len(more) == 0 {
			return all
		}
		all = append(all, more...)
	}
}

// wellFormed checks a history against G1, G2, G7 and G15: it has no gap, tokens grow with each claim (a worker
// accepts under the token under which the execution was scheduled to it), every effect of an owner has the newest
// token, each generation has one end, and no event of an owner follows that end.
func wellFormed(t *testing.T, events []belay.Event) {
	t.Helper()
	var newest belay.Token
	final := false
	for i, ev := range events {
		if ev.Seq != int64(i+1) {
			t.Fatalf("event %d has seq %d: a gap in\n%s", i+1, ev.Seq, show(events))
		}
		switch ev.Kind {
		case "started", "scheduled":
			accepts := ev.Kind == "started" && i > 0 && events[i-1].Kind == "scheduled" && ev.Token == newest
			if ev.Token <= newest && !accepts {
				t.Errorf("event %d claims with token %d after %d\n%s", ev.Seq, ev.Token, newest, show(events))
			}
			newest = ev.Token
		case "step", "state", "succeeded", "failed", "timed_out", "suspended":
			if ev.Token != newest {
				t.Errorf("event %d, %s, carries token %d; the newest is %d\n%s", ev.Seq, ev.Kind, ev.Token, newest,
					show(events))
			}
		case "retry", "requeue":
			final = false
		}
		if final {
			t.Errorf("event %d, %s, comes after the end\n%s", ev.Seq, ev.Kind, show(events))
		}
		final = final || ev.Final
	}
}

func show(events []belay.Event) string {
	var b strings.Builder
	for _, ev := range events {
		fmt.Fprintf(&b, "  %3d %s %-10s %-12s token %d %s %s\n", ev.Seq, ev.At.Format("15:04:05.000"), ev.Kind, ev.Name,
			ev.Token, clip(string(ev.Data)), ev.Text)
	}
	return b.String()
}

// count returns the number of events of a kind.
func count(events []belay.Event, kind string) int {
	n := 0
	for _, ev := range events {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

// savedSteps returns the saved steps, each with the token under which it was saved.
func savedSteps(t *testing.T, events []belay.Event) map[string]belay.Token {
	t.Helper()
	saved := make(map[string]belay.Token)
	for _, ev := range events {
		if ev.Kind != "step" {
			continue
		}
		if _, twice := saved[ev.Name]; twice {
			t.Errorf("step %s is saved twice\n%s", ev.Name, show(events))
		}
		saved[ev.Name] = ev.Token
	}
	return saved
}

// artifact returns a log or artifact of an execution as belay logs prints it.
func (p *place) artifact(id belay.ExecutionID, name string) string {
	p.t.Helper()
	return p.belay("logs", id.String(), "--name", name, "--raw").want(0).out
}

// clean checks that no process of the test, no workspace and no partial file is left. A killed
// process may take a moment to disappear.
func (p *place) clean() {
	p.t.Helper()
	if !poll(patience, func() bool { return len(p.processes()) == 0 }) {
		p.t.Errorf("processes are left:\n%s", strings.Join(p.processes(), "\n"))
	}
	p.noWorkspaces()
}

func (p *place) noWorkspaces() {
	p.t.Helper()
	for _, dir := range []string{"jobs", "scratch"} {
		entries, err := os.ReadDir(filepath.Join(p.data, "workspaces", dir))
		if err != nil && !os.IsNotExist(err) {
			p.t.Fatal(err)
		}
		for _, e := range entries {
			p.t.Errorf("%s/%s is left", dir, e.Name())
		}
	}
}

// processes lists the processes that belong to this test: their arguments or environment contain
// the beginning of a run id of the test's executions, or their arguments, environment or working
// directory contain the path of the test's directory.
func (p *place) processes() []string {
	p.t.Helper()
	marks := make(map[string]bool)
	for _, e := range p.executions() {
		// A run id begins with the bits of its execution's id. Its last digits mix bits of the
		// execution's id with bits of the token, so the search uses only the digits before them.
		body := strings.TrimPrefix(belay.RunID{Execution: e.ID}.String(), "run_")
		marks["run_"+body[:24]] = true
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		p.t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		dir := filepath.Join("/proc", entry.Name())
		if entry.Name()[0] < '0' || entry.Name()[0] > '9' || entry.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		text := string(args) + "\x00" + string(env)
		ours := strings.Contains(text, p.root+"/") || strings.HasPrefix(cwd+"/", p.root+"/")
		for mark := range marks {
			ours = ours || strings.Contains(text, mark)
		}
		if ours {
			found = append(found, entry.Name()+" "+strings.ReplaceAll(clip(string(args)), "\x00", " ")+" in "+cwd)
		}
	}
	return found
}

// sound checks with belay doctor that the database is sound.
func (p *place) sound() {
	p.t.Helper()
	r := p.belay("doctor", "-o", "json").want(0)
	var findings []struct{ What, How, Detail string }
	decode(p.t, r.out, &findings)
	for _, f := range findings {
		if f.What == "database" && f.How == "ok" && strings.Contains(f.Detail, "sound") {
			return
		}
	}
	p.t.Errorf("doctor does not find the database sound\n%s", r)
}

// decode parses a text that must be JSON.
func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("no JSON: %v\n%s", err, clip(text))
	}
}

// idOf returns the id of the execution that belay run has printed on its standard error.
func idOf(t *testing.T, stderr string) belay.ExecutionID {
	t.Helper()
	for _, word := range strings.Fields(stderr) {
		if id, err := belay.ParseExecutionID(word); err == nil {
			return id
		}
	}
	t.Fatalf("standard error names no execution:\n%s", clip(stderr))
	return belay.ExecutionID{}
}

// gitEnv returns an environment in which git reads no configuration of the developer.
func (p *place) gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.path("home"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A",
		"GIT_COMMITTER_EMAIL=a@example.org",
	}
}

// git runs git in a directory.
func (p *place) git(dir string, args ...string) string {
	p.t.Helper()
	return p.gitWith(dir, "", args...)
}

// gitWith runs git with a text on its standard input.
func (p *place) gitWith(dir, stdin string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, p.gitEnv(), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// repository makes a repository with one commit and returns its path.
func (p *place) repository() string {
	p.t.Helper()
	dir := p.path("repo")
	p.git(p.root, "init", "-q", "-b", "main", dir)
	for name, text := range map[string]string{"README": "a repository\n", "notes.txt": "notes\n", "src/a.txt": "a\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	p.git(dir, "add", ".")
	p.git(dir, "commit", "-q", "-m", "first")
	return dir
}

// read returns a file's text, or "" if there is no file.
func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}
