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

// countLines counts the lines of a file of the working directory.
func (p *place) countLines(name string) map[string]int {
	p.t.Helper()
	n := map[string]int{}
	for _, line := range p.lines(name) {
		n[line]++
	}
	return n
}

// lineDocument is a document whose tasks write their names into the file log; b fails while the file ok is missing, and
// c takes a second.
func (p *place) lineDocument() (text, file string) {
	p.t.Helper()
	text = fmt.Sprintf(`name: line
tasks:
  - {id: a, uses: command, with: {run: [sh, -c, 'echo a >> "$1"/log', sh, %[1]q]}}
  - {id: b, uses: command, needs: a, with: {run: [sh, -c, 'echo b >> "$1"/log; test -e "$1"/ok', sh, %[1]q]}}
  - id: c
    uses: command
    needs: b
    with: {run: [sh, -c, 'echo c >> "$1"/log; sleep 1; echo "$2" >> "$1"/out', sh, %[1]q, "${{ tasks.b.output.exit_code }}"]}
  - {id: d, uses: command, needs: c, with: {run: [sh, -c, 'echo d >> "$1"/log', sh, %[1]q]}}
`, p.cwd)
	file = filepath.Join(p.cwd, "line.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return text, file
}

// Rule: a repair over HTTP survives kill -9 in the middle of the repaired generation: finished tasks and the skipped
// task do not run again, and the tasks after them run with the output that a person has given.
func TestARepairSurvivesAKill(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := append([]string{"--concurrency", "4"}, bare...)
	s, a := p.serve(args...)
	text, _ := p.lineDocument()
	sum := sha256.Sum256([]byte(text))
	data, err := json.Marshal(map[string]any{"document": text, "hash": hex.EncodeToString(sum[:])})
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(p.belay("--server", a.url, "submit", "document", "--input", string(data)).want(0).out)
	p.belay("--server", a.url, "watch", id).want(0).showing("line has 4 tasks", "a succeeded", "b failed", "failed")
	p.belay("--server", a.url, "tasks", id).want(0).showing("TASK", "a", "succeeded", "b", "failed", "pending")
	// A caller cannot store a repair as a part of the input.
	forged := strings.TrimSuffix(string(data), "}") + `, "repair": [{"generation": 2, "skip": "b", "by": "root"}]}`
	p.belay("--server", a.url, "retry", id, "--input", forged).want(belay.CodeInvalid.Exit()).saying("not for callers")
	p.belay("--server", a.url, "submit", "document", "--input", forged).want(belay.CodeInvalid.Exit())
	p.belay("--server", a.url, "retry", id, "--skip", "a").want(belay.CodeConflict.Exit()).saying("cannot be skipped")
	p.belay("--server", a.url, "retry", id, "--from", "x").want(belay.CodeInvalid.Exit()).saying(`no task "x"`)
	p.belay("--server", a.url, "retry", id, "--skip", `b={"exit_code": 42}`, "--reason", "done by hand").want(0)
	until(t, "c has begun", func() bool { return p.countLines("log")["c"] == 1 })
	p.belay("--server", a.url, "retry", id, "--from", "a").want(belay.CodeConflict.Exit()).saying("cancel it first")
	s.kill()
	_, a = p.serve(args...)
	p.belay("--server", a.url, "watch", id).want(0).showing("succeeded")
	p.belay("--server", a.url, "get", id).want(0).showing("skipped by hand by", "done by hand", "requeue")
	var got struct {
		Generation int
		Tasks      []belay.Task
	}
	text = p.belay("--server", a.url, "get", id, "-o", "json").want(0).out
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Generation != 2 || len(got.Tasks) != 4 ||
		got.Tasks[1].ByHand == nil || got.Tasks[1].ByHand.Note != "done by hand" {
		t.Errorf("%v\n%s", err, text)
	}
	n, out := p.countLines("log"), p.lines("out")
	if n["a"] != 1 || n["b"] != 1 || n["c"] < 1 || n["c"] > 2 || n["d"] < 1 || len(out) == 0 || out[0] != "42" {
		t.Errorf("the tasks wrote %v and %v", n, out)
	}
}

// Rule: belay retry repairs an execution of belay run in its data directory; the same belay run line continues it, also
// after a kill.
func TestARepairOfBelayRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, file := p.lineDocument()
	line := []string{"run", file, "--key", "k"}
	p.belay(line...).want(1).saying("b failed")
	if err := os.WriteFile(filepath.Join(p.cwd, "ok"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.belay("retry", "@last", "--from", "a").want(0)
	p.belay("tasks", "@last").want(0).showing("a", "pending", "after a")
	x := p.start(p.command(line...))
	until(t, "c has begun", func() bool { return p.countLines("log")["c"] == 1 })
	x.kill()
	p.belay(line...).want(0)
	n := p.countLines("log")
	if n["a"] != 2 || n["b"] != 2 || n["c"] < 1 || n["c"] > 2 || n["d"] != 1 {
		t.Errorf("the tasks wrote %v", n)
	}
	p.belay("tasks", "@last", "--state", "failed").want(0)
	p.belay("tasks", "@last", "nope").want(belay.CodeInvalid.Exit()).saying("no task")
	p.belay("watch", "@last").want(0).showing("d succeeded")
}
