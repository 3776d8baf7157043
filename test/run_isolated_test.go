package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// look is a script that prints its user, tries to write outside its workspace, and changes a file.
func look(outside string) string {
	return fmt.Sprintf("id -u; echo x > %q 2>/dev/null && echo wrote; echo work >> notes.txt", outside)
}

// Rule: without any configuration, the command of belay run has the rights of the user who started
// it. The output describes the command's sandbox.
func TestARunHasTheRightsOfItsUser(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	outside := p.path("outside")
	r := p.run("--repo", p.repository(), "--", "sh", "-c", look(outside)).want(0).saying("isolated by: ",
		"no new privileges; no limits")
	if want := fmt.Sprintf("%d\nwrote\n", os.Geteuid()); r.out != want || strings.Count(r.err, "isolated by: ") != 1 {
		t.Errorf("want %q\n%s", want, r)
	}
}

// Rule: under root, a command with --isolated has its own user, a read-only file system and the
// configured limits. Its changes belong to the caller all the same, also after kill -9 of belay
// run.
func TestARunIsIsolated(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user; TestARunIsIsolatedWithoutRoot covers the others")
	}
	p := newPlace(t)
	outside, repo := p.path("outside"), p.repository()
	isolated := func(args ...string) *started {
		return p.start(withEnv(p.command(append([]string{"run", "--isolated", "--repo", repo}, args...)...),
			"BELAY_AGENT_MAX_PROCESSES=99"))
	}
	r := isolated("--", "sh", "-c", look(outside)+"; cat /proc/self/status | grep NoNewPrivs").wait(patience).want(0)
	r.saying("isolated by: pid namespace; no new privileges; user ",
		"read-only but for its own directories; 99 processes by ")
	uid, err := strconv.Atoi(strings.TrimSuffix(strings.SplitAfter(r.out, "\n")[0], "\n"))
	if err != nil || uid < 0x70000000 || strings.Contains(r.out, "wrote") || exists(outside) {
		t.Errorf("the command ran as another user or in another directory\n%s", r)
	}
	if patch := p.artifact(idOf(t, r.err), "step-1.patch"); !strings.Contains(patch, "+work") {
		t.Errorf("the command's changes are %q", patch)
	}

	x := isolated("--key", "work", "--step", "one="+changes, "--step", "two=echo two >&2; exec sleep 600")
	x.until("the second step runs", func() bool { return strings.Contains(x.err.String(), "\ntwo\n") })
	x.signal(syscall.SIGKILL)
	x.wait(patience)
	p.belay("workspaces", "salvage", "work", "--to", p.cwd).want(0)
	p.belay("workspaces", "restore", "work", p.path("again")).want(0)
	p.restored(p.path("again"))
	all, err := filepath.Glob(filepath.Join(p.path("again"), "*"))
	for _, path := range append(all, p.path("again/.git/HEAD")) {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil || st.Uid != 0 {
			t.Errorf("%s belongs to %d, %v", path, st.Uid, err)
		}
	}
	if err != nil || len(all) < 3 {
		t.Errorf("restored %q, %v", all, err)
	}
	user := regexp.MustCompile(`; user (\d+);`).FindStringSubmatch(x.err.String())
	if user == nil {
		t.Fatalf("no user in %q", x.err.String())
	}
	other, err := os.Open("/run/belay/users/" + user[1]) // as a run does that has the user now
	if err == nil {
		err = syscall.Flock(int(other.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	if gc := p.belay("workspaces", "gc").want(0); !strings.Contains(gc.out, "1 leftover not removed") {
		t.Errorf("gc does not say that it left a workspace\n%s", gc)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	// A run of another test can have the user in the meantime.
	until(t, "the work is removed", func() bool {
		return strings.Contains(p.belay("workspaces", "gc").want(0).out, "no leftovers")
	})
	p.clean()
}

// Rule: without root, --isolated works too: it uses the means of isolation that the machine has,
// and the output names the missing ones.
func TestARunIsIsolatedWithoutRoot(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo := p.repository()
	cmd := p.command("run", "--isolated", "--repo", repo, "--", "sh", "-c", "id -u; echo work >> notes.txt")
	who := os.Geteuid()
	if who == 0 {
		who = 65534
		own := p.path("belay")
		if err := os.Link(cmd.Path, own); err != nil {
			raw, rerr := os.ReadFile(cmd.Path)
			if rerr != nil || os.WriteFile(own, raw, 0o755) != nil {
				t.Fatal(err, rerr)
			}
		}
		err := filepath.WalkDir(p.root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || path == own {
				return err
			}
			return os.Lchown(path, who, who)
		})
		if err == nil {
			err = os.Chmod(filepath.Dir(p.root), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Args[0] = own, own
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(who), Gid: uint32(who)}}
	}
	r := p.start(cmd).wait(patience).want(0).saying("isolated by: ", "no new privileges; ",
		"read-only but for its own directories; 1024 processes by ", "4 GiB of memory by ")
	if r.out != fmt.Sprintln(who) {
		t.Errorf("the command ran as another user\n%s", r)
	}
}
