package test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: if belay cannot read a command line, its error names the command or flag that the user
// probably meant, and the help to read.
func TestAnUnknownCommandGetsASuggestion(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for args, says := range map[string]string{
		"lss":             `there is no command "belay lss"; did you mean ls`,
		"keys lss":        `there is no command "belay keys lss"; did you mean ls? `,
		"ls --stat x":     "unknown flag: --stat; did you mean --state? `belay ls --help` lists the flags",
		"serve --listn x": "did you mean --listen?",
		"nothinglikethat": "`belay --help` lists them",
		"ls extra":        `"extra" is one too many`,
	} {
		p.belay(strings.Fields(args)...).want(64).saying(says)
	}
	help := p.belay("help", "serve").want(0)
	for _, title := range []string{"\nFlags:\n", "\nFlags for agent:\n", "\nFlags for limits:\n", "\nGlobal Flags:\n"} {
		if !strings.Contains(help.out, title) {
			t.Errorf("the help of serve has no %q", title)
		}
	}
}

// Rule: a user can name an execution by the beginning or the end of its id, by its key, or as
// @last. Belay refuses a part of an id that matches two executions.
func TestExecutionsHaveShortNames(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("--repo", "none", "--key", "first", "--", "true").want(0)
	first := p.only().ID.String()
	p.run("--repo", "none", "--", "true").want(0)
	for _, name := range []string{first, first[len(first)-6:], "first", first[:len(first)-1], strings.TrimPrefix(first,
		"ex_")} {
		if r := p.belay("get", name).want(0); !strings.Contains(r.out, first) {
			t.Errorf("%s names another execution\n%s", name, r)
		}
	}
	if r := p.belay("get", "@last").want(0); strings.Contains(r.out, first) {
		t.Errorf("@last is not the newest\n%s", r)
	}
	p.belay("get", "ex_01").want(66).saying("no execution has the id")
	p.belay("get", first[:7]).want(64).saying("matches 2 executions")
}

// Rule: if no engine runs, ls, get and explain say that they show the states from the time when the
// last engine stopped. For an execution that only its own belay run can continue, explain shows the
// command line that continues it.
func TestStatesAreOfTheLastEngine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.start(p.command("run", "--", "sh", "-c", "echo up; "+busy(p.path("free"))))
	x.says("the working directory is in no git repository")
	x.until("the command runs", func() bool { return strings.Contains(x.out.String(), "up") })
	if r := p.belay("ls").want(0); strings.Contains(r.err, "no engine") {
		t.Errorf("an engine runs, and the output says that none does\n%s", r)
	}
	x.signal(syscall.SIGKILL)
	x.wait(patience)
	for _, args := range [][]string{{"ls"}, {"get", "@last"}} {
		r := p.belay(args...).want(0).saying("no engine runs on this data directory; the last change was made")
		if !strings.Contains(r.out, belay.Running.String()) {
			t.Errorf("the output does not show the last state\n%s", r)
		}
	}
	r := p.belay("explain", "@last").want(0)
	for _, says := range []string{"no engine runs on this data directory", "when the last engine ended: It has run",
		"type the same line again, with --resume", "belay cancel ex_"} {
		if !strings.Contains(r.out, says) {
			t.Errorf("explain does not say %q\n%s", says, r)
		}
	}
	p.run("--repo", "none", "--key", "done", "--", "true").want(0)
	if r := p.belay("get", "done").want(0); strings.Contains(r.err, "no engine") {
		t.Errorf("an ended execution needs no engine\n%s", r)
	}
}

// Rule: a command refuses a data directory that its user may not read, and says what to do; it does
// not report the directory as empty.
func TestAnUnreadableDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	p := newPlace(t)
	p.run("--repo", "none", "--", "true").want(0)
	other := newPlace(t)
	other.as = otherUser
	for _, args := range [][]string{{"ls"}, {"get", "@last"}} {
		other.belay(append(args, "--data",
			p.data)...).want(belay.CodeForbidden.Exit()).saying("this user may not look into " + p.data)
	}
}
