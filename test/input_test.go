package test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// Exit codes that belay's help documents.
const (
	codeUsage   = 64 // the command line cannot be read
	codeInvalid = 65 // invalid input, or too large
	codeMissing = 66 // not found
	codeCannot  = 73 // not possible in the present state
)

// refusal is a command line that must be refused with an exit code and one line that names the
// reason, while nothing is stored, made or started.
type refusal struct {
	name string
	args []string
	code int
	says string
}

func refusals(p *place, repo string) []refusal {
	runIn := func(args ...string) []string { return append([]string{"run", "--repo", repo}, args...) }
	none := func(args ...string) []string { return append([]string{"run", "--repo", "none"}, args...) }
	long := strings.Repeat("x", 300)
	return []refusal{
		{"unknown flag", none("--frobnicate", "--", "true"), codeUsage, "--frobnicate"},
		{"unknown command", []string{"frobnicate"}, codeUsage, "frobnicate"},
		{"command without dashes", none("true"), codeUsage, "--"},
		{"no command", none(), codeInvalid, "no command"},
		{"no command after the dashes", none("--"), codeInvalid, "no command"},
		{"empty command", none("--", ""), codeInvalid, "empty command"},
		{"blank command", none("--", " "), codeInvalid, "empty command"},
		{"missing repository", []string{
			"run", "--repo", p.path("nowhere"), "--", "true",
		}, codeMissing, "does not exist"},
		{"path that is no repository", []string{
			"run", "--repo", p.path("home"), "--", "true",
		}, codeMissing, "not a git repository"},
		{"file as a repository", []string{"run", "--repo", os.Args[0], "--", "true"}, codeMissing, "not a directory"},
		{"repository that starts with a dash", []string{"run", "--repo", "--upload-pack=touch owned", "--", "true"},
			codeInvalid, "dash"},
		{"repository with ext", []string{
			"run", "--repo", "ext::sh -c touch% owned", "--", "true",
		}, codeInvalid, "not allowed"},
		{"repository with fd", []string{"run", "--repo", "fd::7", "--", "true"}, codeInvalid, "not allowed"},
		{"repository over http", []string{
			"run", "--repo", "http://127.0.0.1:1/x", "--", "true",
		}, codeInvalid, "not allowed"},
		{"repository with control bytes", []string{"run", "--repo", repo + "\x1b[31m\a", "--", "true"}, codeInvalid,
			"control"},
		{"repository that is no text", []string{
			"run", "--repo", repo + "\xff\xfe", "--", "true",
		}, codeInvalid, "UTF-8"},
		{"ref that starts with a dash", runIn("--ref", "--upload-pack=touch owned", "--", "true"), codeInvalid, "dash"},
		{"ref that is an option", runIn("--ref=-x", "--", "true"), codeInvalid, "dash"},
		{"ref with control bytes", runIn("--ref", "a\x01b", "--", "true"), codeInvalid, "control"},
		{"ref that is no text", runIn("--ref", "\xff", "--", "true"), codeInvalid, "UTF-8"},
		{"ref with a range", runIn("--ref", "main..HEAD", "--", "true"), codeInvalid, ".."},
		{"ref without a repository", none("--ref", "main", "--", "true"), codeUsage, "repository"},
		{"argument that is no text", none("--", "echo", "\xff\xfe"), codeInvalid, "UTF-8"},
		{"step that is no text", none("--step", "a=echo \xff"), codeInvalid, "UTF-8"},
		{"step without a name", none("--step", "=true"), codeUsage, "name=command"},
		{"step without a command", none("--step", "a="), codeUsage, "name=command"},
		{"step twice", none("--step", "a=true", "--step", "a=true"), codeInvalid, "two steps"},
		{"steps and a command", none("--step", "a=true", "--", "true"), codeUsage, "not both"},
		{"step with a control byte in its name", none("--step", "a\x1bb=true"), codeInvalid, "name"},
		{"step with a long name", none("--step", long+"=true"), codeInvalid, "name"},
		{"key that is too long", none("--key", long, "--", "true"), codeInvalid, "200"},
		{"key that is no text", none("--key", "\xff", "--", "true"), codeInvalid, "UTF-8"},
		{"key and resume", none("--key", "k", "--resume", "--", "true"), codeUsage, "not both"},
		{"bad duration", none("--timeout", "5 minutes", "--", "true"), codeUsage, "5 minutes"},
		{"duration without a unit", none("--timeout", "5", "--", "true"), codeUsage, "unit"},
		{"negative duration", none("--timeout", "-5s", "--", "true"), codeInvalid, "negative"},
		{"negative grace", none("--grace", "-5s", "--", "true"), codeInvalid, "negative"},
		{"duration beyond everything", none("--timeout", "99999999h", "--", "true"), codeUsage, "99999999h"},
		{"environment variable with a value", none("--env", "A=b", "--", "true"), codeInvalid, "A=b"},
		{"environment variable of git", none("--env", "GIT_DIR", "--", "true"), codeInvalid, "GIT_DIR"},
		{"too many steps", none(manySteps(101)...), codeInvalid, "100"},
		{"command that is too large", none(append([]string{"--"}, many(10_000, strings.Repeat("y", 150))...)...),
			codeInvalid, "1048576"},
		{"output as xml", none("-o", "xml", "--", "true"), codeUsage, "xml"},
		{"list without a directory", []string{"ls"}, codeMissing, "belay run"},
		{"cancel without a directory", []string{"cancel", "k"}, codeMissing, "belay run"},
		{"get of nothing", []string{"get"}, codeUsage, "id"},
	}
}

func many(n int, arg string) []string {
	args := make([]string, n)
	for i := range args {
		args[i] = arg
	}
	return args
}

func manySteps(n int) []string {
	var args []string
	for i := range n {
		args = append(args, "--step", "s"+strconv.Itoa(i)+"=true")
	}
	return args
}

// Rule: for invalid input belay prints one clear line and ends with a documented exit code; it
// stores nothing, makes no file and leaves no process.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	shared := newPlace(t)
	repo := shared.repository()
	for _, c := range refusals(shared, repo) {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			p := newPlace(t)
			r := p.belay(c.args...)
			if r.code != c.code {
				t.Errorf("exit code %d, want %d\n%s", r.code, c.code, r)
			}
			one(t, r, c.says)
			if r.out != "" {
				t.Errorf("standard output of a refusal: %q", r.out)
			}
			if all := p.executions(); len(all) != 0 {
				t.Errorf("the refused execution is stored: %+v", all[0])
			}
			if _, err := os.Stat(filepath.Join(p.cwd, "owned")); err == nil {
				t.Error("an argument of git started a program")
			}
			p.clean()
		})
	}
}

// one checks that the error output is one printable line that contains a text.
func one(t *testing.T, r result, says string) {
	t.Helper()
	text := strings.TrimSuffix(r.err, "\n")
	if !strings.HasPrefix(text, "belay: ") || strings.Contains(text, "\n") || !strings.Contains(text, says) {
		t.Errorf("want one line with %q\n%s", says, r)
	}
	printable(t, r)
	if len(text) > 700 {
		t.Errorf("a line of %d bytes is too long to read", len(text))
	}
}

// printable checks that Belay's own lines contain no control characters.
func printable(t *testing.T, r result) {
	t.Helper()
	for line := range strings.Lines(r.err) {
		if strings.HasPrefix(line, "belay: ") && strings.ContainsFunc(strings.TrimSuffix(line, "\n"),
			func(c rune) bool { return c < ' ' || c == 0x7f || c == 0xfffd }) {
			t.Errorf("belay says %q", line)
		}
	}
}

// Rule: if the repository does not have the given ref, the job ends with that reason before any
// command runs, and leaves nothing.
func TestUnknownRef(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.run("--repo", p.repository(), "--ref", "no-such-branch", "--", "sh", "-c",
		"echo ran").want(125).saying("no branch, tag or commit no-such-branch")
	if r.out != "" {
		t.Errorf("the command ran\n%s", r)
	}
	p.clean()
}

// Rule: if a command cannot be started, the job ends with the exit code that a shell would have,
// and with the reason.
func TestCommandsThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := p.path("not-executable")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("--repo", "none", "--", "no-such-command").want(127).saying("not found", "no-such-command")
	p.run("--repo", "none", "--", p.path("nowhere")).want(127).saying("nowhere")
	p.run("--repo", "none", "--", file).want(126).saying("not executable")
	p.run("--repo", "none", "--", p.path("home")).want(126)
	p.run("--repo", "none", "--", "sh", "-c", "exit 3").want(3)
	p.run("--repo", "none", "--", "sh", "-c", "kill -9 $$").want(137)
	for _, e := range p.executions() {
		if e.State != belay.Failed || e.Error == nil {
			t.Errorf("%s is %s", e.ID, e.State)
		}
	}
	p.clean()
}

// Rule: a key belongs to one command. Belay refuses another command under the same key, and keeps
// the execution of the first command.
func TestAKeyBelongsToOneCommand(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("--repo", "none", "--key", "k", "--", "echo", "one").want(0)
	first := p.only()
	one(t, p.run("--repo", "none", "--key", "k", "--", "echo", "two").want(codeInvalid), first.ID.String())
	if e := p.only(); e.Seq != first.Seq || e.State != belay.Succeeded {
		t.Errorf("%+v", e)
	}
	p.clean()
}

// Rule: the payload of a signal must be JSON, without NUL characters, and within its limit. Belay
// does not deliver a signal that it refuses.
func TestInvalidSignalPayloadsAreRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.start(p.command("run", "--repo", "none", "--key", "k", "--", "sh", "-c", "echo up; "+busy(p.path("free"))))
	x.until("the command runs", func() bool { return strings.Contains(x.out.String(), "up") })
	x.signal(9)
	x.wait(patience)
	for name, c := range map[string]struct {
		payload, says string
		codes         []int
	}{
		"not JSON": {"{", "JSON", []int{codeUsage, codeInvalid}},
		"no text":  {"\"\xff\"", "UTF-8", []int{codeUsage, codeInvalid}},
		"NUL":      {`"a\u0000b"`, "NUL", []int{codeInvalid}},
		"over limit": {`"` + strings.Repeat("x", belay.MaxSignal) + `"`, strconv.Itoa(belay.MaxSignal),
			[]int{codeInvalid}},
	} {
		r := p.belay("signal", "k", "go", "--payload", c.payload)
		if r.code != c.codes[0] && r.code != c.codes[len(c.codes)-1] {
			t.Errorf("%s: exit code %d, want one of %v\n%s", name, r.code, c.codes, r)
		}
		one(t, r, c.says)
	}
	if n := count(p.history(p.only().ID), "signal"); n != 0 {
		t.Errorf("%d signals were delivered", n)
	}
	p.belay("signal", "k", "go", "--payload", `{"ok":true}`).want(0)
	if n := count(p.history(p.only().ID), "signal"); n != 1 {
		t.Errorf("%d signals were delivered, want one", n)
	}
}

// Rule: the engine itself refuses data that it cannot store, from any caller: a NUL character,
// invalid JSON, and data over a limit, which the error names. It accepts the other submissions of
// the same call.
func TestTheEngineRefusesDataThatItCannotStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	b, err := embedded.Open(t.Context(), "sqlite:"+p.data, embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	good := belay.Submission{Workflow: "w", Input: json.RawMessage(`{"a":"ü"}`)}
	for name, c := range map[string]struct {
		s    belay.Submission
		code belay.Code
		says string
	}{
		"NUL": {
			belay.Submission{Workflow: "w", Input: json.RawMessage(`"a\u0000b"`)}, belay.CodeInvalid, "NUL",
		},
		"NUL byte": {
			belay.Submission{Workflow: "w", Input: json.RawMessage("\"a\x00b\"")}, belay.CodeInvalid, "",
		},
		"not JSON": {belay.Submission{Workflow: "w", Input: json.RawMessage(`{`)}, belay.CodeInvalid, "JSON"},
		"over limit": {belay.Submission{Workflow: "w", Input: quote(strings.Repeat("x", belay.MaxPayload))},
			belay.CodePayloadTooLarge, strconv.Itoa(belay.MaxPayload)},
		"no workflow":      {belay.Submission{Input: json.RawMessage(`1`)}, belay.CodeInvalid, "workflow"},
		"NUL in a name":    {belay.Submission{Workflow: "w\x00", Input: json.RawMessage(`1`)}, belay.CodeInvalid, ""},
		"NUL in the key":   {belay.Submission{Workflow: "w", IdempotencyKey: "a\x00"}, belay.CodeInvalid, ""},
		"name that is not": {belay.Submission{Workflow: "w\xff"}, belay.CodeInvalid, "UTF-8"},
	} {
		before := listed(t, b)
		out, err := b.Submit(context.Background(), good, c.s, good)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := belay.CodeOf(out[1].Err); out[1].Err == nil || got != c.code || !strings.Contains(out[1].Err.Error(),
			c.says) {
			t.Errorf("%s: %v (%s), want %s with %q", name, out[1].Err, got, c.code, c.says)
		}
		if out[0].Err != nil || out[2].Err != nil {
			t.Errorf("%s: the other submissions failed too: %v, %v", name, out[0].Err, out[2].Err)
		}
		if n := listed(t, b) - before; n != 2 {
			t.Errorf("%s: %d executions were created, want 2", name, n)
		}
	}
}

func listed(t *testing.T, b belay.Client) int {
	t.Helper()
	page, err := b.Executions(t.Context(), belay.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Executions)
}
