package test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
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
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	readme, err := os.ReadFile("../examples/documents/README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if _, run := documentRuns[name]; !run && name != "approval" {
			t.Errorf("no test runs %s", file)
		}
		if !strings.Contains(string(readme), "("+name+".yaml)") {
			t.Errorf("the README does not list %s", file)
		}
		p.belay("workflows", "validate", exampleDocument(t, name)).want(0)
	}
}

// documentRun is how a test runs an example document: its input, its exit code, and texts of its output.
type documentRun struct {
	input string // DIR stands for the working directory
	code  int
	shows []string
}

var documentRuns = map[string]documentRun{
	"fan-out":    {`{"count": 30}`, 0, []string{`"sum": 9455`}},
	"saga":       {`{"trip": "rome", "car": false, "log": "DIR/log"}`, 1, nil},
	"matrix":     {`{}`, 0, []string{`5 of 6 builds`, `linux-amd64.tar`}},
	"retry":      {`{"dir": "DIR"}`, 0, []string{`the check failed: step "command" ended with exit code 4`}},
	"map-reduce": {`{"texts": 200}`, 0, []string{`"words": 1000`, `"parts": 20`}},
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
			args := []string{
				"run", exampleDocument(t, name), "--input", strings.ReplaceAll(want.input, "DIR", p.cwd), "--resume",
			}
			killed := 0
			for range 2 {
				x := p.start(p.command(args...))
				x.says("ex_")
				if x.after(between(r, 0, 700*time.Millisecond)) {
					x.kill()
					killed++
				}
			}
			got := p.belay(args...)
			if got.code != want.code {
				// The last kill may have come after the end of the document, so that this line began another one.
				t.Fatalf("exit code %d, want %d\n%s", got.code, want.code, got)
			}
			got.showing(want.shows...)
			t.Logf("killed %d times", killed)
			p.endsOfDocument(name)
		})
	}
}

// endsOfDocument checks what an example has done outside of Belay.
func (p *place) endsOfDocument(name string) {
	p.t.Helper()
	if name != "saga" {
		return
	}
	text, err := os.ReadFile(filepath.Join(p.cwd, "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	// A booking may be written twice, since a kill can come between the effect of a command and its end.
	order := regexp.MustCompile(`^(flight rome\n)+(hotel rome\n)+(cancel hotel rome\n)+(cancel flight rome\n)+$`)
	if !order.Match(text) && !strings.Contains(string(text), "cancel flight rome\nflight rome") {
		p.t.Errorf("the bookings are %q", text)
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

// Rule: a foreach of many items survives two kills: every item is done, and no item whose end was saved is repeated.
func TestDocumentOfManyItems(t *testing.T) {
	t.Parallel()
	const items = 300
	p := newPlace(t)
	doc := fmt.Sprintf(`name: many
tasks:
  - id: each
    uses: command
    foreach: 1..%d
    parallel: 12
    with: {run: [sh, -c, 'echo "$1" >> "$2"', sh, "${{ item }}", %q]}
output: ${{ len(tasks.each.output) }}
`, items, filepath.Join(p.cwd, "done"))
	file := filepath.Join(p.cwd, "many.yaml")
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	done := func() []string { return p.lines("done") }
	for _, at := range []int{items / 3, 2 * items / 3} {
		x := p.start(p.command("run", file, "--resume"))
		x.until(fmt.Sprintf("%d items are done", at), func() bool { return len(done()) >= at })
		x.signal(syscall.SIGKILL)
		x.wait(patience)
	}
	p.belay("run", file, "--resume").want(0).showing(fmt.Sprint(items))
	count := map[string]int{}
	for _, line := range done() {
		count[line]++
	}
	again := 0
	for _, n := range count {
		again += n - 1
	}
	if len(count) != items || again > 2*12 {
		t.Errorf("%d of %d items are done, %d are repeated; at most the 12 of each kill may be", len(count), items,
			again)
	}
}

// Rule: belay run says what is wrong with a document and its input, and runs nothing.
func TestDocumentsThatCannotRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	write := func(name, text string) string {
		file := filepath.Join(p.cwd, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	bad := write("bad.yaml", "name: bad\ntasks:\n  - {id: a, uses: comand}\n")
	p.belay("run", bad).want(belay.CodeInvalid.Exit()).saying("bad.yaml:3:19:", `did you mean "command"?`)
	p.belay("run", "missing.yaml").want(belay.CodeNotFound.Exit()).saying("there is no file")
	good := write("good.yaml", "name: good\ninput: {type: object, properties: {n: {type: integer}}}\n"+
		"tasks:\n  - {id: a, uses: command, with: {run: \"true\"}}\n")
	p.belay("run", good, "--input", `{"n": "x"}`).want(belay.CodeInvalid.Exit()).saying("input.n: got string, want integer")
	p.belay("run", good, "--step", "a=b").want(belay.CodeMalformed.Exit()).saying("--step is for commands")
	agent := write("agent.yaml", "name: agent\ntasks:\n  - {id: a, uses: agent, with: {prompt: hi}}\n")
	p.belay("run", agent).want(belay.CodeInvalid.Exit()).saying("BELAY_AGENT_COMMAND")
	var all []struct {
		Valid    bool
		Problems []struct{ Line, Column int }
	}
	out := p.belay("workflows", "validate", "-o", "json", bad, good).want(belay.CodeInvalid.Exit())
	if err := json.Unmarshal([]byte(out.out), &all); err != nil || len(all) != 2 || all[0].Valid || !all[1].Valid ||
		all[0].Problems[0].Line != 3 {
		t.Errorf("%v\n%s", err, out)
	}
	p.belay("workflows", "graph", good).want(0).showing("  1  a  command")
	p.belay("workflows", "graph", "--format", "mermaid", good).want(0).showing("flowchart LR", `t_a["a: command"]`)
	p.belay("workflows", "graph", "--format", "svg", good).want(0).showing("<svg ")
	p.belay("workflows", "schema").want(0).showing("https://json-schema.org/draft/2020-12/schema")
}

// Rule: a server runs submitted documents and their commands, and goes on after a kill.
func TestServerRunsDocuments(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := append([]string{"--concurrency", "4"}, bare...)
	s, a := p.serve(args...)
	text := fmt.Sprintf(`name: on-server
tasks:
  - {id: a, uses: command, with: {run: [sh, -c, 'echo a >> "$1"', sh, %[1]q]}}
  - {id: nap, uses: sleep, needs: a, with: {for: 2s}}
  - {id: b, uses: command, needs: nap, with: {run: [sh, -c, 'echo b >> "$1"; echo done', sh, %[1]q], capture: text}}
output: ${{ tasks.b.output.stdout }}
`, filepath.Join(p.cwd, "log"))
	sum := sha256.Sum256([]byte(text))
	input := map[string]any{"document": text, "hash": hex.EncodeToString(sum[:])}
	data, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(p.belay("--server", a.url, "submit", "document", "--input", string(data)).want(0).out)
	until(t, "the first command has run", func() bool { return len(p.lines("log")) == 1 })
	s.kill()
	_, a = p.serve(args...)
	p.belay("--server", a.url, "watch", id).want(0).showing("succeeded")
	// The kill may come between the effect of the first command and its end.
	if got := strings.Join(p.lines("log"), " "); got != "a b" && got != "a a b" {
		t.Errorf("the commands wrote %s", got)
	}
	input["document"] = "name: x"
	if data, err = json.Marshal(input); err != nil {
		t.Fatal(err)
	}
	p.belay("--server", a.url, "submit", "document", "--input", string(data)).want(belay.CodeInvalid.Exit())
}
