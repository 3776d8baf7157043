package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// maxOutput bounds what a git may answer with where nothing else does: lists of
// files and refs.
const maxOutput int64 = 256 << 20

// git runs the git of this machine, away from everybody's configuration.
type git struct {
	bin  string // absolute; "" if there is none
	home string // an empty directory
	// authorities is a file of certificates to believe in; "" for those of the system.
	authorities string
}

// command is one call of git.
type command struct {
	dir   string // GIT_DIR; "" for none
	tree  string // work tree; "" for none
	index string // index file; "" for the one of dir
	at    string // working directory; "" for the work tree, or an empty directory
	// remote is the source that it reads; nil for none. It is reached over line, if there
	// is one.
	remote *source
	line   *os.File
	stdin  io.Reader
	limit  int64 // of its output; 0 for maxOutput
	args   []string
}

// errLimit means that git's answer is longer than its limit.
var errLimit = errors.New("the output is beyond its limit")

// hardened stands before every subcommand: nothing that a repository's own
// configuration names is run, and nothing is left running.
var hardened = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false",
	"core.attributesFile=/dev/null", "core.excludesFile=/dev/null", "core.askPass=", "core.autocrlf=false",
	"core.commitGraph=false", "core.multiPackIndex=false", "pack.useBitmaps=false",
	"credential.helper=", "submodule.recurse=false", "fetch.recurseSubmodules=false", "init.templateDir=",
	"fetch.unpackLimit=1", "gc.auto=0", "maintenance.auto=false", "commit.gpgSign=false", "advice.detachedHead=false",
	"http.lowSpeedLimit=100", "http.lowSpeedTime=60",
}

// errNoGit means that there is no git.
var errNoGit = &belay.Error{
	Code: belay.CodeUnavailable, Message: "git is not installed, or not on PATH; a workspace with a repository " +
		"needs it",
}

// run calls git and returns what it wrote to standard output.
func (g *git) run(ctx context.Context, c command) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout := &bounded{limit: cmp.Or(c.limit, maxOutput), full: func() { cancel(errLimit) }}
	if err := g.pipe(ctx, c, stdout); err != nil {
		return nil, err
	}
	return stdout.buf.Bytes(), nil
}

// pipe calls git and writes its standard output to w.
func (g *git) pipe(ctx context.Context, c command, w io.Writer) error {
	if g.bin == "" {
		return errNoGit
	}
	stderr := &tail{}
	cmd := g.command(ctx, c)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, w, stderr
	// The signal at our death follows the thread that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var err error
	begun, hangUp := func() {}, func() {}
	if c.line != nil {
		if begun, hangUp, err = bridge(cmd, c.line); err != nil {
			return fmt.Errorf("git %s: %w", c.args[0], err)
		}
	}
	err = cmd.Start()
	begun()
	if err == nil {
		err = cmd.Wait()
	}
	hangUp()
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("git %s: %w", c.args[0], cause)
	}
	if err != nil {
		return &gitError{command: c.args[0], err: err, text: stderr.text(c.remote)}
	}
	return nil
}

// command sets up a git in a process group of its own, that ends with ctx.
func (g *git) command(ctx context.Context, c command) *exec.Cmd {
	args := make([]string, 0, 2*len(hardened)+len(c.args)+4)
	for _, setting := range hardened {
		args = append(args, "-c", setting)
	}
	if c.remote != nil && c.remote.user+c.remote.password != "" {
		args = append(args, "-c", "credential."+c.remote.host()+".helper="+answerFromEnvironment)
	}
	if c.dir != "" {
		args = append(args, "--git-dir="+c.dir)
	}
	if c.tree != "" {
		args = append(args, "--work-tree="+c.tree)
	}
	cmd := exec.CommandContext(ctx, g.bin, append(args, c.args...)...)
	cmd.Env = g.environment(c)
	cmd.Dir = g.home
	if dir := cmp.Or(c.at, c.tree); dir != "" {
		cmd.Dir = dir
	}
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// lineURL is how a git calls the source at the other end of its line, the one
// descriptor that it gets beside its standard ones.
const lineURL = "fd::3"

// answerFromEnvironment is a helper that hands git what is in its environment, where
// only this user's processes can read it, and not in arguments, where everybody can.
// It is set for one host, so that a redirection to another gets nothing.
const answerFromEnvironment = `!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$BELAY_GIT_USERNAME" "$BELAY_GIT_PASSWORD"; }; f`

// remoteEnvironment is passed on to a git that talks to another machine.
var remoteEnvironment = []string{
	"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
}

// environment builds the whole environment of a git; nothing is inherited but by
// name.
func (g *git) environment(c command) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + g.home, "XDG_CONFIG_HOME=" + g.home,
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_OPTIONAL_LOCKS=0", "GIT_DEFAULT_REF_FORMAT=files",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_ALLOC_LIMIT=2g", // an object beyond this is an attack on the memory
	}
	if c.index != "" {
		env = append(env, "GIT_INDEX_FILE="+c.index)
	}
	switch {
	case c.line != nil:
		return append(env, "GIT_ALLOW_PROTOCOL=fd")
	case c.remote == nil:
		return append(env, "GIT_ALLOW_PROTOCOL=file")
	}
	env = append(env, "GIT_ALLOW_PROTOCOL=https", "BELAY_GIT_USERNAME="+c.remote.user, "BELAY_GIT_PASSWORD="+
		c.remote.password)
	for _, name := range remoteEnvironment {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if g.authorities != "" {
		env = append(env, "GIT_SSL_CAINFO="+g.authorities)
	}
	return env
}
