package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// block is a part of docs/http.md: commands to run, and the answer that the page shows.
type block struct {
	commands, language, answer string
}

var blocks = regexp.MustCompile("(?s)<!-- run[^>]* -->\n```sh\n(.*?)```\n(?:\n```(json|text)\n(.*?)```\n)?")

// Rule: a reader who follows docs/http.md word for word with curl gets the answers that the page
// shows.
func TestTheHTTPPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, m := range blocks.FindAllStringSubmatch(string(page), -1) {
		all = append(all, block{m[1], m[2], m[3]})
	}
	if len(all) < 10 {
		t.Fatalf("the page has %d blocks to run; is it written in the form that the test reads?", len(all))
	}
	p := newPlace(t)
	_, a := p.serve()
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	for i, b := range all {
		fmt.Fprintf(&script, "%s\nprintf '\\n=== end of %d\\n'\n", strings.ReplaceAll(b.commands,
			"http://127.0.0.1:7420", a.url), i)
	}
	cmd := exec.Command("bash", "-c", script.String())
	cmd.Dir, cmd.Env = p.cwd, p.environment("NO_PROXY=127.0.0.1")
	r := p.start(cmd).wait(patience)
	if r.code != 0 {
		t.Fatal(r)
	}
	rest := r.out
	for i, b := range all {
		out, after, ok := strings.Cut(rest, fmt.Sprintf("\n=== end of %d\n", i))
		if !ok {
			t.Fatalf("block %d did not end", i)
		}
		rest = after
		b.check(t, out)
	}
}

// check compares the output of the commands with the answer that the page shows.
func (b block) check(t *testing.T, out string) {
	t.Helper()
	switch b.language {
	case "text":
		rest := out
		for line := range strings.Lines(b.answer) {
			_, after, ok := strings.Cut(rest, strings.TrimSpace(line))
			if !ok {
				t.Errorf("%s\nprinted\n%s\nwithout %q in its place", b.commands, out, line)
				return
			}
			rest = after
		}
	case "json":
		var want any
		if err := json.Unmarshal([]byte(b.answer), &want); err != nil {
			t.Errorf("the page's answer is no JSON: %v\n%s", err, b.answer)
			return
		}
		// The commands may have printed several answers; the page shows one of them.
		for decoder := json.NewDecoder(strings.NewReader(out)); ; {
			var got any
			if err := decoder.Decode(&got); err != nil {
				t.Errorf("%s\nprinted\n%s\nthe page says\n%s", b.commands, out, b.answer)
				return
			}
			if holds(got, want) {
				return
			}
		}
	}
}

// holds reports whether got contains everything in want.
func holds(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		for name, v := range want {
			has, there := m[name]
			ok = ok && there && holds(has, v)
		}
		return ok
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return false
		}
		for i := range want {
			ok = ok && holds(list[i], want[i])
		}
		return ok
	}
	return reflect.DeepEqual(got, want)
}
