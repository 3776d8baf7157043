package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// nightly is the text of a document that writes its version, naps, and writes it again.
func (p *place) nightly(version int, nap string) string {
	p.t.Helper()
	text := fmt.Sprintf(`name: nightly
input: {type: object, properties: {day: {type: integer, default: 1}}}
tasks:
  - {id: a, uses: command, with: {run: [sh, -c, 'echo a%[1]d >> "$1"', sh, %[2]q]}}
  - {id: nap, uses: sleep, needs: a, with: {for: %[3]s}}
  - {id: b, uses: command, needs: nap, with: {run: [sh, -c, 'echo b%[1]d >> "$1"', sh, %[2]q]}}
output: "version %[1]d of day ${{ input.day }}"
`, version, filepath.Join(p.cwd, "log"), nap)
	return p.file(fmt.Sprintf("nightly%d.yaml", version), text)
}

// file writes a file into the working directory.
func (p *place) file(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.cwd, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// Rule: an execution ends under the version with which it was submitted, although the server was killed and the
// document was changed meanwhile; a new execution has the new version, and a repeated submission finds the old one.
func TestAnExecutionEndsUnderItsVersion(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := append([]string{"--concurrency", "4"}, bare...)
	s, a := p.serve(args...)
	at := func(a api, args ...string) result { return p.belay(append([]string{"--server", a.url}, args...)...) }
	at(a, "workflows", "apply", p.nightly(1, "3s")).want(0).showing("nightly@1 stored")
	submit := []string{"submit", "--document", "nightly", "--key", "day-7", "--input", `{"day": 7}`}
	id := strings.TrimSpace(at(a, submit...).want(0).out)
	until(t, "the first command has run", func() bool { return len(p.lines("log")) == 1 })
	s.kill()
	_, a = p.serve(args...)
	at(a, "workflows", "apply", p.nightly(2, "1ms")).want(0).showing("nightly@2 stored")
	at(a, "workflows", "apply", p.nightly(2, "1ms")).want(0).showing("nightly@2 unchanged")
	at(a, "workflows", "rm", "nightly@1").want(0)
	if again := strings.TrimSpace(at(a, submit...).want(0).out); again != id {
		t.Errorf("the repeated submission is %s, not %s", again, id)
	}
	at(a, "submit", "--document", "nightly", "--wait").want(0).showing("version 2 of day 1")
	at(a, "watch", id).want(0).showing("succeeded")
	at(a, "get", id).want(0).showing("version 1 of day 7", "nightly@1")
	at(a, "ls", "--document", "nightly@1").want(0).showing(id)
	if out := at(a, "ls", "--document", "nightly@2").want(0).out; strings.Contains(out, id) {
		t.Errorf("the list of version 2 has %s:\n%s", id, out)
	}
	// The kill may come between the effect of the first command and its end.
	if got := strings.Join(p.lines("log"), " "); strings.Count(got, "b1") != 1 || strings.Count(got, "b2") != 1 ||
		strings.Count(got, "a2") != 1 {
		t.Errorf("the commands wrote %s", got)
	}
}

// Rule: the commands about stored documents work with a data directory and with a server, and say what is wrong.
func TestCommandsAboutStoredDocuments(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"data", "server"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			var to []string
			if where == "server" {
				_, a := p.serve(bare...)
				to = []string{"--server", a.url}
			}
			belayd := func(args ...string) result { return p.belay(append(to[:len(to):len(to)], args...)...) }
			wf := func(args ...string) result { return belayd(append([]string{"workflows"}, args...)...) }
			one, two := p.nightly(1, "1ms"), p.nightly(2, "1ms")
			wf("apply", one).want(0).showing("nightly@1 stored")
			wf("apply", "--new", two).want(belay.CodeConflict.Exit()).saying("newest version is 1")
			wf("apply", "--if-version", "2", two).want(belay.CodeConflict.Exit()).
				saying("the newest version is 1, not 2")
			wf("apply", "--dry-run", two).want(0).showing("+++ "+two, "-output: \"version 1", "+output: \"version 2")
			wf("diff", two).want(0).showing("+output: \"version 2")
			wf("diff", "nightly").want(belay.CodeNotFound.Exit()).saying("only one version")
			wf("apply", "--if-version", "1", two, "--reason", "faster").want(0).showing("nightly@2 stored")
			wf("diff", "nightly").want(0).showing("--- nightly@1", "+++ nightly@2")
			wf("diff", "nightly", "2", "1").want(0).showing("--- nightly@2")
			wf("ls").want(0).showing("nightly")
			wf("ls", "nightly").want(0).showing("nightly@2", "nightly@1")
			text, err := os.ReadFile(one)
			if got := wf("get", "nightly@1", "--text").want(0).out; err != nil || got != string(text) {
				t.Errorf("the text is %q, not %q (%v)", got, text, err)
			}
			wf("get", "nightly@7").want(belay.CodeNotFound.Exit()).saying("no version 7; the newest is 2")
			wf("deprecate", "nightly@2", "--reason", "it deletes too much").want(0)
			wf("deprecate", "nightly").want(belay.CodeMalformed.Exit())
			belayd("submit", "--document", "nightly@2").want(0).saying("nightly@2 is deprecated: it deletes too much")
			belayd("submit", "--document", "nightly", "--input", `{"day": "x"}`).want(belay.CodeInvalid.Exit()).
				saying("input.day: got string, want integer")
			wf("restore", "nightly@2").want(0)
			var info []belay.DocumentInfo
			if err := json.Unmarshal([]byte(wf("ls", "-o", "json").want(0).out), &info); err != nil || len(info) != 1 ||
				info[0].Default != 2 || info[0].Count != 2 {
				t.Errorf("%v: %+v", err, info)
			}
			wf("rm", "nightly").want(0)
			wf("ls").want(0).showing("no documents")
			wf("get", "nightly").want(belay.CodeNotFound.Exit()).saying("there is no stored document nightly")
			belayd("submit", "--document", "nightly").want(belay.CodeNotFound.Exit())
			belayd("submit", "--document", "../x").want(belay.CodeMalformed.Exit())
			bad := p.file("bad.yaml", "name: bad\ntasks:\n  - {id: a, uses: comand}\n")
			wf("apply", one, bad).want(belay.CodeInvalid.Exit()).saying("bad.yaml:3:19:", `did you mean "command"?`)
			wf("ls").want(0).showing("no documents")
		})
	}
}

// Rule: the server refuses a wrong document with its problems, a document of another name, and a document that unfolds
// to more than its text.
func TestTheServerChecksDocuments(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve(bare...)
	bomb := "name: nightly\nx: &a [1,1,1,1,1,1,1,1,1]\ny: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" +
		"z: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nw: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\nv: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
	for text, want := range map[string]string{
		"name: nightly\ntasks:\n  - {id: a, uses: comand}\n":                "line 3, column 19",
		"name: weekly\ntasks:\n  - {id: a, uses: sleep, with: {for: 1s}}\n": "name: weekly, and the path says nightly",
		bomb: "more than 20000 values",
		"":   "text",
	} {
		body, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		got := a.call("PUT", "/v1/workflows/nightly", string(body))
		if got.status != 422 || !strings.Contains(got.text, want) {
			t.Errorf("%.60q: %d %s, want %q", text, got.status, got.text, want)
		}
	}
}

// Rule: a task may start a stored document. The child keeps its version when the document is changed and the server is
// killed while it runs.
func TestATaskStartsAStoredDocument(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := append([]string{"--concurrency", "4"}, bare...)
	s, a := p.serve(args...)
	at := func(a api, args ...string) result { return p.belay(append([]string{"--server", a.url}, args...)...) }
	week := p.file("week.yaml", `name: week
tasks:
  - {id: one, uses: workflow, with: {document: nightly, input: {day: 3}}}
  - {id: two, uses: workflow, needs: one, with: {document: nightly, input: {day: 4}}}
  - {id: none, uses: workflow, needs: two, on_failure: continue, with: {document: missing}}
output: "${{ tasks.one.output }}, ${{ tasks.two.output }}, ${{ tasks.none.error }}"
`)
	at(a, "workflows", "apply", p.nightly(1, "3s"), week).want(0).showing("week@1 stored")
	id := strings.TrimSpace(at(a, "submit", "--document", "week").want(0).out)
	until(t, "the first command has run", func() bool { return len(p.lines("log")) == 1 })
	at(a, "workflows", "apply", p.nightly(2, "1ms")).want(0)
	s.kill()
	_, a = p.serve(args...)
	at(a, "workflows", "rm", "nightly@1").want(0)
	at(a, "watch", id).want(0).showing("succeeded")
	at(a, "get", "-o", "json", id).want(0).
		showing("version 1 of day 3, version 2 of day 4", "no stored document missing")
}
