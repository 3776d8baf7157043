package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
)

// Rule: no value of a placeholder becomes an option, another argument or a part of a script.
func TestHostileValuesOfAnOpener(t *testing.T) {
	o := Opener{"open", "{{title}}", "--title={{title}}", "{{branch}}x{{title}}", "{{repo}}"}
	got := o.fill(map[string]string{"{{title}}": "--force; $(x) {{repo}}\x00", "{{branch}}": "-b", "{{repo}}": "r"})
	want := []string{"open", " --force; $(x) {{repo}}", "--title=--force; $(x) {{repo}}", " -bx--force; $(x) {{repo}}",
		"r"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, o := range []Opener{
		{""}, {"{{repo}}"}, {"sh", "-c", "open {{title}}"}, {"bash", "-ec", "x {{branch}}"}, {"open", "{{prompt}}"},
		{"open", "{{token}}"}, {"open", "a\x00"}, {"env", "sh", "-c", "{{repo}}"},
	} {
		if code := belay.CodeOf(o.Check()); code != belay.CodeInvalid {
			t.Errorf("%q is accepted: %s", o, code)
		}
	}
	for _, o := range []Opener{nil, {"open", "{{repo}}", "{{job}}"}, {"sh", "-c", `open "$1"`, "sh", "{{title}}"}} {
		if err := o.Check(); err != nil {
			t.Errorf("%q: %v", o, err)
		}
	}
}

// Rule: the title of a prompt is one short line without control characters, and is no option.
func TestTitles(t *testing.T) {
	for prompt, want := range map[string]string{
		"fix it\nand more": "fix it", " --title x": "title x", "@file": "file", "\x1b[31mred": "[31mred",
		"-\n":         "Work of an agent",
		"a\u202eb\tc": "a b c", "": "Work of an agent", strings.Repeat("ä", 100): strings.Repeat("ä", 71) + "…",
	} {
		if got := titleOf(prompt); got != want {
			t.Errorf("%q: %q, want %q", prompt, got, want)
		}
	}
}

// Rule: the command gets its own secrets and no other variable. The first address in its output is
// the result; an address with a secret is not. Its errors contain no secret.
func TestOpenerRuns(t *testing.T) {
	t.Setenv("OF_THE_SERVER", "server-secret")
	secret := map[string]string{"TOKEN": "own-secret-1"}
	file := filepath.Join(t.TempDir(), "env")
	run := func(script string) (string, error) {
		return Opener{"sh", "-c", script, "sh", "{{branch}}"}.run(t.Context(), secret, map[string]string{
			"{{branch}}": "-x",
		})
	}
	url, err := run(`env >` + file + `; echo "$1|$PWD"; echo https://h/?t=$TOKEN; echo https://u:p@h/; echo https://h/1`)
	if err != nil || url != "https://h/1" {
		t.Errorf("%q, %v", url, err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "TOKEN=own-secret-1") ||
		strings.Contains(string(text), "OF_THE_SERVER") {
		t.Errorf("%s %v", text, err)
	}
	if _, err := run(`echo "bad $TOKEN" >&2; exit 3`); err == nil || strings.Contains(err.Error(), "own-secret") ||
		!strings.Contains(err.Error(), "exit status 3: bad [TOKEN]") {
		t.Error(err)
	}
	if _, err := run(`head -c 10000000 /dev/zero`); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Error(err)
	}
}

// Rule: a push must be allowed, and only to branches that match a pattern.
func TestPushesThatAreAllowed(t *testing.T) {
	const repo = "https://example.org/a.git"
	p := &Pushing{Branches: []string{"belay/*", "fix"}}
	for branch, code := range map[string]belay.Code{
		"": "", "belay/x": "", "fix": "", "belay/{{job}}-x": "", "fixed": belay.CodeForbidden,
		"main":  belay.CodeForbidden,
		"belay": belay.CodeForbidden, "belay/": belay.CodeInvalid, "belay/../main": belay.CodeInvalid,
		"-f": belay.CodeInvalid, "belay/a:main": belay.CodeInvalid, "refs/heads/main": belay.CodeForbidden,
	} {
		if err := p.check(&PushTo{Branch: branch}, repo); belay.CodeOf(err) != code && !(err == nil && code == "") {
			t.Errorf("%q: %v, want %s", branch, err, code)
		}
	}
	var off *Pushing
	if code := belay.CodeOf(off.check(&PushTo{}, repo)); code != belay.CodeForbidden {
		t.Errorf("a push that is switched off: %s", code)
	}
	if belay.CodeOf(p.check(&PushTo{}, "")) != belay.CodeInvalid || belay.CodeOf(p.check(&PushTo{}, "/srv/x")) !=
		belay.CodeInvalid {
		t.Error("a push without a remote repository is accepted")
	}
	_, err := NewSetup("", Setup{Command: Template{"a", "{{prompt}}"}, Env: []string{"T"}, Pushing: &Pushing{
		Env: []string{"T"}, Credentials: workspace.CredentialFile("/none"),
	}})
	if belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("agents get the variable of the command: %v", err)
	}
}
