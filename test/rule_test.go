//go:build linux

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay/internal/testkit/gitwatch"
)

// sourceOf makes a repository that belongs to a user, with a git-crypt key if git-crypt is
// installed on this machine.
func (p *place) sourceOf(uid int) (dir, key string) {
	p.t.Helper()
	dir = p.repository()
	if _, err := exec.LookPath("git-crypt"); err == nil {
		key = p.path("crypt.key")
		script := `git-crypt init && git-crypt export-key "$1" && echo 'secret* filter=git-crypt diff=git-crypt' > .gitattributes &&
echo sesame > secret.txt && git add -A && git commit -qm secret && chmod 600 "$1"`
		cmd := exec.Command("sh", "-ec", script, "sh", key)
		cmd.Dir, cmd.Env = dir, p.environment("GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org",
			"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org")
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Fatalf("%v: %s", err, out)
		}
	}
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	}); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(p.root, 0o755); err != nil { // the owner of the source needs the right to pass this directory
		p.t.Fatal(err)
	}
	return dir, key
}

// Rule: root never runs git on files that belong to another user, throughout the life of a job on
// another user's repository: while the repository is cloned, checked out and unlocked, while the
// job's changes are saved, after a kill of the server, while the changes are salvaged and restored,
// and in belay workspaces. Only a git process of the source repository's owner reads that
// repository.
func TestRootRunsNoGitOnFilesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root could break the rule")
	}
	t.Parallel()
	p := newPlace(t)
	src, key := p.sourceOf(foreignUser)
	dir, seen := gitwatch.Watch(t)
	path := "PATH=" + dir + ":" + os.Getenv("PATH")
	env := []string{path, "BELAY_AGENT_SAVE_EVERY=200ms", "BELAY_AGENT_REPO=" + src}
	if key != "" {
		env = append(env, "BELAY_AGENT_GIT_CRYPT_KEY="+key)
	}
	workspaces := func(args ...string) result {
		t.Helper()
		return p.start(withEnv(p.command(append([]string{"workspaces"}, args...)...), path)).wait(patience)
	}
	a := p.assisted(env)
	id := a.ask("edit notes.txt stashed\ngit stash -m kept\ngit tag -f here\nedit a.txt a\ncommit work\nedit " +
		"b.txt loose\n" + a.hold("first"))
	a.holds("first")
	saves := func() int {
		return strings.Count(fmt.Sprint(gitwatch.By(seen())["bundle"]), "18")
	}
	until(t, "the job's changes are saved while it runs", func() bool { return saves() > 0 })
	workspaces("ls").want(0)
	workspaces("salvage", id, "--to", p.cwd)
	a.server.signal(syscall.SIGKILL)
	a.server.wait(patience)
	workspaces("ls").want(0)
	workspaces("restore", id, p.path("before")).want(0)
	a = a.killAndRestart(env)
	a.holds("first")
	a.free("first")
	a.wantEnd(id, "completed", 0.0)
	for _, more := range [][]string{nil, {"--isolated"}} { // a user starts belay run, without and with --isolated
		p.start(withEnv(p.command(slices.Concat([]string{"run", "--repo", src}, more, []string{"--", "sh", "-c",
			"git status"})...), path)).wait(patience).want(0)
	}
	workspaces("salvage", id, "--to", p.path("home")).want(0)
	workspaces("restore", id, p.path("after")).want(0)
	workspaces("gc").want(0)
	a.stop()

	all := seen()
	gitwatch.RootAlone(t, all)
	did := gitwatch.By(all)
	if by := did["upload-pack"]; !slices.Contains(by, foreignUser) {
		t.Errorf("gitwatch saw no git of the owner read the source: %v", did)
	}
	job := func(uid int) bool { return uid >= 1_800_000_000 }
	for _, verb := range []string{"fetch", "reset", "bundle", "stash"} {
		if !slices.ContainsFunc(did[verb], job) {
			t.Errorf("gitwatch saw no git %s of a job's user or of the clones' user: %v", verb, did)
		}
	}

	// The test also runs a git that breaks the rule on purpose, to check that gitwatch records it.
	if was := len(gitwatch.Faults(all)); was > 0 {
		return
	}
	plants := [][]string{
		{"-C", src, "status"}, {"--git-dir=" + src + "/.git", "log", "-1"}, {"ls-remote", "file://" + src},
		{"--git-dir=/proc/self/fd/3", "rev-parse", "HEAD"},
	}
	for _, args := range plants {
		open, err := os.Open(filepath.Join(src, ".git"))
		if err != nil {
			t.Fatal(err)
		}
		before := len(gitwatch.Faults(seen()))
		cmd := exec.Command(filepath.Join(dir, "git"), append([]string{"-c", "safe.directory=*"}, args...)...)
		cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", p.environment(), []*os.File{open}
		_ = cmd.Run() // git itself may refuse to run
		_ = open.Close()
		if !poll(patience, func() bool { return len(gitwatch.Faults(seen())) == before+1 }) {
			t.Errorf("gitwatch did not see root's git %q on another user's repository", args)
		}
	}
}
