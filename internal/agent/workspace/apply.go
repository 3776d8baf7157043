package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Application says how to apply saved work to a person's clone.
type Application struct {
	// Dir is a directory of the clone. Commit is the commit on which the work is based.
	Dir, Commit string
	// Branch is the new branch that gets the work.
	Branch string
	// If Dry is true, nothing in the clone is changed. If Dirty is true, the clone may have
	// uncommitted changes.
	Dry, Dirty bool
}

// Applied describes work in a person's clone.
type Applied struct {
	Dir    string `json:"dir"`
	Branch string `json:"branch"`
	// Commit is the commit of the new branch.
	Commit string `json:"commit"`
	// Files lists the changed files: a letter as in git status, a space and the path. More is the
	// number of further files.
	Files []string `json:"files"`
	More  int      `json:"more,omitempty"`
}

// Apply makes a new branch with the commits of saved work in a person's clone, switches to it, and
// leaves the uncommitted changes of the work in the work tree. A steward first reads the work in a
// sandbox. Everything else runs as the user of this process, with the git and the configuration of
// this user, and without hooks. git checks each object, so that no file can be written in .git,
// through a symbolic link or outside of the clone.
func (m *Manager) Apply(ctx context.Context, a Application, s Salvage) (Applied, error) {
	c := person{bin: m.git.bin, dir: a.Dir}
	if c.bin == "" {
		return Applied{}, errNoGit
	}
	if err := CheckBranch(a.Branch); err != nil {
		return Applied{}, err
	}
	if !isObject(a.Commit) {
		return Applied{}, invalid("the commit on which the work is based is not known")
	}
	if err := c.check(ctx, &a); err != nil {
		return Applied{}, err
	}
	objects, err := c.run(ctx, nil, "rev-parse", "--path-format=absolute", "--git-path", "objects")
	if err != nil {
		return Applied{}, err
	}
	shallow, err := c.run(ctx, nil, "rev-parse", "--path-format=absolute", "--git-path", "shallow")
	if err != nil {
		return Applied{}, err
	}
	w := &Workspace{ID: "apply", Commit: a.Commit, m: m, objects: objects}
	if w.shallow, err = readRegular(shallow, maxShallow); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Applied{}, err
	}
	made, err := m.Compose(ctx, w, s, "uncommitted changes", time.Unix(0, 0))
	if err == nil && made.Head == "" {
		err = invalid("the work ends on a branch without a commit: use belay workspaces restore")
	}
	if err != nil {
		return Applied{}, err
	}
	got := Applied{Dir: c.dir, Branch: a.Branch, Commit: made.Head, Files: made.Files, More: made.More}
	if a.Dry {
		return got, nil
	}
	return got, c.apply(ctx, a.Branch, &made)
}

// person runs the git of a person in the person's clone.
type person struct{ bin, dir string }

// run runs git and returns its output without the last newline. It uses the person's configuration,
// and runs no hooks and no file system monitor.
func (c *person) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.bin, append([]string{"-c", "core.hooksPath=/dev/null", "-c",
		"core.fsmonitor=false", "-c", "submodule.recurse=false", "-c", "core.protectNTFS=true", "-c",
		"core.protectHFS=true"}, args...)...)
	cmd.Dir, cmd.Stdin = c.dir, stdin
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// Git LFS would fetch files from the address that a file .lfsconfig of the work names.
	cmd.Env = append(cmd.Env, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_LFS_SKIP_SMUDGE=1")
	said := &tail{}
	out := &bounded{limit: maxOutput, full: func() {}}
	cmd.Stdout, cmd.Stderr = out, said
	if err := cmd.Run(); err != nil {
		return "", &gitError{command: args[0], err: err, text: said.text(nil)}
	}
	return strings.TrimSuffix(out.buf.String(), "\n"), nil
}

// check returns an error if the work cannot be applied, and sets c.dir to the top of the clone.
func (c *person) check(ctx context.Context, a *Application) error {
	top, err := c.run(ctx, nil, "rev-parse", "--show-toplevel")
	if err != nil {
		return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf("%s is no clone with files", a.Dir), Err: err}
	}
	if c.dir, err = filepath.Abs(top); err != nil {
		return err
	}
	conflict := func(format string, args ...any) error {
		return &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf(format, args...)}
	}
	if _, err := c.run(ctx, nil, "cat-file", "-e", a.Commit+"^{commit}"); err != nil {
		return conflict("%s does not have the commit %s, on which the work is based: run git fetch there", c.dir,
			a.Commit)
	}
	if _, err := c.run(ctx, nil, "rev-parse", "--verify", "--quiet", heads+a.Branch); err == nil {
		return conflict("%s has a branch %s already; name another with --branch", c.dir, a.Branch)
	}
	if a.Dirty {
		return nil
	}
	changed, err := c.run(ctx, nil, "status", "--porcelain", "--untracked-files=no")
	if err == nil && changed != "" {
		err = conflict("%s has uncommitted changes; commit them, or apply the work all the same with --dirty", c.dir)
	}
	return err
}

// apply changes the clone. After an error the clone is on its former branch and has no new branch.
func (c *person) apply(ctx context.Context, branch string, made *Composed) error {
	if len(made.Pack) > 0 {
		if _, err := c.run(ctx, bytes.NewReader(made.Pack), "index-pack", "--stdin", "--fix-thin", "--fsck-objects",
			"--strict"); err != nil {
			return err
		}
	}
	before, err := c.run(ctx, nil, "symbolic-ref", "--quiet", "--short", "HEAD")
	back := []string{"switch", "--quiet", before}
	if err != nil {
		if before, err = c.run(ctx, nil, "rev-parse", "--verify", "HEAD^{commit}"); err != nil {
			return err
		}
		back = []string{"switch", "--quiet", "--detach", before}
	}
	// Without this option git overwrites files that it ignores. Only switch has it, so switch writes all files.
	if _, err := c.run(ctx, nil, "switch", "--quiet", "--no-track", "--no-overwrite-ignore", "-c", branch,
		made.Commit); err != nil {
		return err
	}
	if made.Commit == made.Head {
		return nil
	}
	// the branch and the index go back to the commits of the work, and the files keep the changes
	if _, err = c.run(ctx, nil, "reset", "--quiet", "--mixed", made.Head); err == nil {
		return nil
	}
	_, berr := c.run(ctx, nil, back...)
	if berr == nil {
		_, berr = c.run(ctx, nil, "branch", "--quiet", "-D", branch)
	}
	return errors.Join(err, berr)
}
