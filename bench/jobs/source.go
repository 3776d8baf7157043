package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Least is the smallest number of files that the repository must have.
const Least = 5000

// Source makes the repository in dir, which must not exist, from Go's own source tree, and returns
// the number of its files. Every user of the machine may read it.
func Source(ctx context.Context, dir string) (files int, err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return 0, fmt.Errorf("the repository of the jobs: %w", err)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return 0, fmt.Errorf("find Go's sources: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	g := place{dir: dir}
	if _, err := g.git(ctx, "init", "--quiet", "--bare", "--shared=0644", "--initial-branch=main", dir); err != nil {
		return 0, err
	}
	index := filepath.Join(dir, "sources.index")
	defer os.Remove(index) //nolint:errcheck // a leftover file disturbs nothing
	g.env = []string{"GIT_INDEX_FILE=" + index}
	for _, args := range [][]string{
		{"--git-dir=" + dir, "--work-tree=" + src, "-c", "core.excludesFile=" + os.DevNull, "add", "--all", "--force",
			src},
		{"--git-dir=" + dir, "repack", "-q"},
	} {
		if _, err := g.git(ctx, args...); err != nil {
			return 0, err
		}
	}
	list, err := g.git(ctx, "--git-dir="+dir, "ls-files")
	if err != nil {
		return 0, err
	}
	if files = strings.Count(list, "\n"); files < Least {
		return files, fmt.Errorf("%s has %d files; at least %d make a large repository", src, files, Least)
	}
	for _, script := range []string{
		`c=$(git commit-tree -m sources "$(git write-tree)") && git update-ref refs/heads/main "$c"`, "git repack -adq",
	} {
		if _, err := g.run(ctx, "sh", "-ec", script); err != nil {
			return files, err
		}
	}
	return files, nil
}

// place is where commands run: a working directory, and an environment without the user's
// configuration.
type place struct {
	dir string   // the working directory
	env []string // further environment variables of the commands
}

// git runs git and returns its output.
func (p place) git(ctx context.Context, args ...string) (string, error) {
	return p.run(ctx, "git", args...)
}

func (p place) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := Command(ctx, name, args...)
	if cmd.Dir = p.dir; !exists(p.dir) {
		cmd.Dir = filepath.Dir(p.dir)
	}
	cmd.Env = append(Environment(os.DevNull), p.env...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Environment returns the environment of git, which has nothing of the user's own environment
// except PATH. home is the directory of git's configuration.
func Environment(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@localhost", "GIT_COMMITTER_NAME=bench",
		"GIT_COMMITTER_EMAIL=bench@localhost",
	}
}

// Neighbour simulates another developer, who pushes commits to the repository while jobs work.
type Neighbour struct {
	stop  context.CancelFunc
	ended chan error
}

// Move starts a Neighbour that makes one commit a second.
func Move(ctx context.Context, repo string) *Neighbour {
	n := &Neighbour{ended: make(chan error, 1)}
	ctx, n.stop = context.WithCancel(ctx)
	go func() { n.ended <- n.commit(ctx, repo) }()
	return n
}

func (n *Neighbour) commit(ctx context.Context, repo string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		text := fmt.Sprintf("%d at %s\n", i, time.Now().Format(time.RFC3339Nano))
		cmd := Command(context.WithoutCancel(ctx), "git", "fast-import", "--quiet", "--date-format=now")
		cmd.Dir, cmd.Env = repo, Environment(os.DevNull)
		cmd.Stdin = strings.NewReader(fmt.Sprintf(
			"commit refs/heads/main\ncommitter neighbour <neighbour@localhost> now\ndata 5\nmoved\nfrom "+
				"refs/heads/main^0\nM 100644 inline moved.txt\ndata %d\n%s\n",
			len(text), text))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("commit to the repository: %w: %s", err, out)
		}
	}
}

// Stop stops the Neighbour and returns its error.
func (n *Neighbour) Stop() error {
	n.stop()
	return <-n.ended
}
