package test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

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
