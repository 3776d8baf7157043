package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// These expressions match the parts of docs/go.md that the test reads: commands to run, with the
// output that the page shows for some of them; files to write; and lines of files to change.
var (
	pagePiece = regexp.MustCompile("(?m)^<!-- (run|file|change)(?:: (.+))? " +
		"-->\n```(sh|go|diff)\n((?s:.*?\n))```\n(?:\n```text\n((?s:.*?\n))```\n)?")
	replaced  = regexp.MustCompile(`(?m)^replace (\S+) => (\S+) (\S+)$`)
	someID    = regexp.MustCompile(`ex_\w{26}`)
	pageFence = regexp.MustCompile("(?m)^```(?:sh|go|diff)$")
)

// Rule: a reader who follows docs/go.md word for word, in an empty folder outside of the
// repository, gets the output that the page shows, with ex_… in place of each id. The test differs
// from the page in three things: it takes Belay from this repository, already built; the server has
// another port; and the database has another address.
func TestTheGoPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	text := strings.NewReplacer("127.0.0.1:7420", address, "postgres://shop@localhost/shop",
		pgtest.Shared(t).Database(t)).Replace(string(page))
	p := newPlace(t)
	script, outputs := p.scriptOf(text)
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir, cmd.Env = p.cwd, append(goEnvironment(t, p), "BELAY_LISTEN="+address)
	x := p.start(cmd)
	// ends the processes that the script started in the background
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	// the script builds programs, which takes long on a busy machine
	r := x.wait(8 * patience)
	if r.code != 0 {
		t.Fatal(r)
	}
	t.Logf("%s of processor time, in %s", r.state.UserTime()+r.state.SystemTime(), r.took)
	rest := r.out
	for i, want := range outputs {
		got, after, ok := strings.Cut(rest, endOf(i))
		if !ok {
			t.Fatalf("block %d did not end\n%s", i, r)
		}
		rest = after
		if got = someID.ReplaceAllString(got, "ex_…"); got != want {
			t.Errorf("block %d prints\n%s\nthe page says\n%s\n%s", i, got, want, r)
		}
	}
}

func endOf(block int) string { return fmt.Sprintf("=== end of block %d\n", block) }

// scriptOf makes a script of the page's blocks. It also returns the output that each block should
// print.
func (p *place) scriptOf(page string) (script string, outputs []string) {
	p.t.Helper()
	pieces := pagePiece.FindAllStringSubmatch(page, -1)
	// every block of the page has a marker except for go install, which the test does not run
	if fences := len(pageFence.FindAllString(page, -1)); len(pieces) != fences-1 || len(pieces) < 15 {
		p.t.Fatalf("the page has %d blocks, and %d with a marker; is it written in the form that the test reads?",
			fences, len(pieces))
	}
	files := map[string]string{}
	var b strings.Builder
	b.WriteString("set -euo pipefail\ntrap 'kill -9 $(jobs -p) 2> /dev/null || true' EXIT\n")
	write := func(name, text string) {
		files[name] = text
		fmt.Fprintf(&b, "cat > '%s' <<'END OF FILE'\n%sEND OF FILE\n", name, text)
	}
	for _, m := range pieces {
		switch kind, names, text := m[1], m[2], m[4]; kind {
		case "file":
			write(names, text)
		case "change":
			for name := range strings.FieldsSeq(names) {
				write(name, changed(p.t, name, files[name], text))
			}
		case "run":
			fmt.Fprintf(&b, "%secho -n '%s'\necho\n", strings.Replace(text, "go mod tidy\n", p.requireThis(), 1),
				strings.TrimSuffix(endOf(len(outputs)), "\n"))
			outputs = append(outputs, m[5])
		}
	}
	return b.String(), outputs
}

// changed applies a diff to a file: it replaces each run of lines that begin with - by the lines
// with + that follow.
func changed(t *testing.T, name, text, diff string) string {
	t.Helper()
	var before, after string
	apply := func() {
		if strings.Count(text, before) != 1 {
			t.Fatalf("%s does not have once\n%s", name, before)
		}
		text = strings.Replace(text, before, after, 1)
		before, after = "", ""
	}
	for line := range strings.Lines(diff) {
		switch {
		case strings.HasPrefix(line, "-"):
			if after != "" {
				apply()
			}
			before += line[1:]
		case strings.HasPrefix(line, "+"):
			after += line[1:]
		default:
			t.Fatalf("the change of %s has a line that is neither old nor new: %s", name, line)
		}
	}
	apply()
	return text
}

// requireThis does the work of go mod tidy without the network: it writes a go.mod that takes Belay
// from this repository and all other modules from the module cache.
func (p *place) requireThis() string {
	p.t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		p.t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		p.t.Fatal(err)
	}
	edit := "go mod edit -require=github.com/belaydev/belay@v0.0.0 -replace=github.com/belaydev/belay='" + root + "'"
	// a module does not inherit the replace lines of another module
	for _, m := range replaced.FindAllStringSubmatch(string(mod), -1) {
		edit += " -replace=" + m[1] + "=" + m[2] + "@" + m[3]
	}
	return edit + "\ncp '" + root + "/go.sum' .\ngo mod tidy 2> tidy.log || { cat tidy.log >&2; exit 1; }\n"
}

// goEnvironment returns the environment of a place, with the belay under test, with the Go of this
// test and its caches, and without the network.
func goEnvironment(t *testing.T, p *place) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(dirs) != 3 {
		t.Fatalf("go env says %q", out)
	}
	env := []string{
		"PATH=" + filepath.Dir(binary(t)) + ":" + filepath.Join(dirs[0], "bin") + ":" + os.Getenv("PATH"),
		"GOCACHE=" + dirs[1], "GOMODCACHE=" + dirs[2], "GOFLAGS=-mod=mod -vet=off -ldflags=-w", "GOPROXY=off",
		"GOSUMDB=off", "GOTOOLCHAIN=local", "GOWORK=off",
		"HOME=" + p.path("home"), "TMPDIR=" + p.path("tmp"), "LANG=C.UTF-8", "CGO_ENABLED=0", "NO_PROXY=127.0.0.1",
	}
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "GOMAXPROCS=") {
			env = append(env, v)
		}
	}
	return env
}
