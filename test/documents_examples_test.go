package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// exampleDocument returns the path of a document under examples/documents.
func exampleDocument(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "examples", "documents", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Rule: each example document is valid, has a test that runs it, and is listed in the README of its directory.
func TestExampleDocumentsAreKnown(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/documents/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	readme, err := os.ReadFile("../examples/documents/README.md")
	if err != nil {
		t.Fatal(err)
	}
	// each of these has its own test
	own := map[string]bool{"approval": true, "budgeted-agent": true, "flaky-service": true, "nightly-agents": true}
	args := []string{"workflows", "validate", exampleDocument(t, "parts/deploy")}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if _, run := documentRuns[name]; !run && !own[name] {
			t.Errorf("no test runs %s", file)
		}
		if !strings.Contains(string(readme), "("+name+".yaml)") {
			t.Errorf("the README does not list %s", file)
		}
		args = append(args, exampleDocument(t, name))
	}
	newPlace(t).belay(args...).want(0)
}

// documentRun is how a test runs an example document: its input, its exit code, and texts of its output.
type documentRun struct {
	input string // DIR stands for the working directory, ROOT for the one above it, EXAMPLES for examples/documents
	code  int
	shows []string
	// prepare makes what the document needs, and returns variables for belay run. check checks the effects of the
	// document outside of Belay. Both may be nil.
	prepare func(p *place) []string
	check   func(p *place)
}

var documentRuns = map[string]documentRun{
	"fan-out": {input: `{"count": 30}`, shows: []string{`"sum": 9455`}},
	"saga":    {input: `{"trip": "rome", "car": false, "log": "DIR/log"}`, code: 1, check: (*place).bookings},
	"matrix":  {input: `{}`, shows: []string{`5 of 6 builds`, `linux-amd64.tar`}},
	"retry": {
		input: `{"dir": "DIR"}`, shows: []string{`the check failed: step "command" ended with exit code 4`},
	},
	"map-reduce": {input: `{"texts": 200}`, shows: []string{`"words": 1000`, `"parts": 20`}},
	"nested": {
		input: `{"parts": "EXAMPLES/parts", "services": ["users", "orders"], "version": "1.4"}`,
		shows: []string{"installed database-1.4.tar", "installed users-1.4.tar", "installed orders-1.4.tar"},
	},
	"ingest": {
		input:   `{"store": "DIR/store", "records": [{"id": 1}, {"id": 2, "n": "x"}, {"id": 1}]}`,
		shows:   []string{`"kept": 2`, `"records": 3`},
		prepare: func(p *place) []string { return p.directory("store") },
		check:   func(p *place) { p.stored(2) },
	},
	"nightly-review": {
		input:   `{"repo": "ROOT/repo", "files": "*.txt"}`,
		shows:   []string{"2 of 2 files reviewed", "notes.txt: Review notes.txt.", "src/a.txt: Review src/a.txt."},
		prepare: (*place).reviewed,
	},
}

// Rule: belay run runs a document to its end; killed at a random moment, and started again with --resume, it goes on:
// the document ends as it would have ended without the kill.
func TestExampleDocuments(t *testing.T) {
	t.Parallel()
	for name, want := range documentRuns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := dice(t)
			p := newPlace(t)
			var env []string
			if want.prepare != nil {
				env = want.prepare(p)
			}
			file := exampleDocument(t, name)
			names := strings.NewReplacer("DIR", p.cwd, "ROOT", p.root, "EXAMPLES", filepath.Dir(file))
			input := names.Replace(want.input)
			run := func() *started {
				cmd := p.command("run", file, "--input", input, "--resume")
				cmd.Env = append(cmd.Env, env...)
				return p.start(cmd)
			}
			killed := 0
			for range 2 {
				x := run()
				x.says("ex_")
				if x.after(between(r, 0, 700*time.Millisecond)) {
					x.kill()
					killed++
				}
			}
			// The last kill may have come after the end of the document, so that this line began another one.
			got := run().wait(patience).want(want.code).showing(want.shows...)
			t.Logf("killed %d times\n%s", killed, got)
			if want.check != nil {
				want.check(p)
			}
		})
	}
}

// directory makes a directory in the working directory.
func (p *place) directory(name string) []string {
	p.t.Helper()
	if err := os.Mkdir(filepath.Join(p.cwd, name), 0o700); err != nil {
		p.t.Fatal(err)
	}
	return nil
}

// reviewed makes a repository for the agent of the tests.
func (p *place) reviewed() []string {
	return []string{"BELAY_AGENT_COMMAND=" + smallAgent(p.t), "BELAY_AGENT_REPOS=" + p.repository()}
}

// bookings checks that the saga has undone its bookings in reverse order.
func (p *place) bookings() {
	p.t.Helper()
	text := read(p.t, filepath.Join(p.cwd, "log"))
	// A booking may be written twice, since a kill can come between the effect of a command and its end.
	order := regexp.MustCompile(`^(flight rome\n)+(hotel rome\n)+(cancel hotel rome\n)+(cancel flight rome\n)+$`)
	if !order.MatchString(text) && !strings.Contains(text, "cancel flight rome\nflight rome") {
		p.t.Errorf("the bookings are %q", text)
	}
}

// stored checks that the store has the records of ingest.yaml, each once.
func (p *place) stored(records int) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.cwd, "store", "*.json"))
	if err != nil || len(files) != records {
		p.t.Errorf("the store has the files %v, %v; want %d", files, err, records)
	}
	if n := len(p.lines("store/index")); n != records {
		p.t.Errorf("the index has %d records, want %d", n, records)
	}
}

// Rule: a document waits for a person over a kill, and an answer that comes while belay run is down counts.
func TestExampleDocumentApproval(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := []string{"run", exampleDocument(t, "approval"), "--input", `{"version": "1.4"}`, "--key", "deploy-1.4"}
	x := p.start(p.command(args...))
	x.says("ask waits for an answer")
	x.kill()
	p.belay("signal", "@last", "deploy_ok", "--payload", `{"approved": true, "by": "ann"}`).want(0)
	p.belay(args...).want(0).showing("deployed 1.4 for ann")
	// The same line prints the result again and runs nothing.
	p.belay(args...).want(0).showing("deployed 1.4 for ann").saying("has ended already")
}
