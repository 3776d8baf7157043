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

// maxOutput is the maximum size, in bytes, of the output of a git command for which no other limit
// is set, such as a list of files or refs.
const maxOutput int64 = 256 << 20

// git runs this machine's git without any user's or the system's configuration.
type git struct {
	bin  string // absolute path; "" if git is not installed
	home string // an empty directory
	// authorities is a file of trusted certificates; "" for the system's certificates.
	authorities string
}

// command is one call of git.
type command struct {
	dir   string // GIT_DIR; "" for none
	tree  string // work tree; "" for none
	index string // index file; "" for the index in dir
	at    string // working directory; "" for the work tree or, without a work tree, an empty directory
	// remote is the source from which the command fetches; nil if it does not fetch. git reaches the
	// source over line (a socket to the process that answers for the source), or over the network if
	// line is nil.
	remote *source
	line   *os.File
	stdin  io.Reader
	limit  int64 // maximum size of the output, in bytes; 0 for maxOutput
	args   []string
}

// errLimit means that the output of a git command exceeds its limit.
var errLimit = errors.New("the output is beyond its limit")

// hardened are settings for every git command. With them, git runs no program that a repository's
// configuration names, and no background process remains after git.
var hardened = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false",
	"core.attributesFile=/dev/null", "core.excludesFile=/dev/null", "core.askPass=", "core.autocrlf=false",
	"core.commitGraph=false", "core.multiPackIndex=false", "pack.useBitmaps=false",
	"credential.helper=", "submodule.recurse=false", "fetch.recurseSubmodules=false", "init.templateDir=",
	"fetch.unpackLimit=1", "gc.auto=0", "maintenance.auto=false", "commit.gpgSign=false", "advice.detachedHead=false",
	"http.lowSpeedLimit=100", "http.lowSpeedTime=60",
}

// errNoGit means that git is not installed.
var errNoGit = &belay.Error{
	Code: belay.CodeUnavailable, Message: "git is not installed, or not on PATH; a workspace with a repository " +
		"needs it",
}

// run runs git and returns its standard output.
func (g *git) run(ctx context.Context, c command) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout := &bounded{limit: cmp.Or(c.limit, maxOutput), full: func() { cancel(errLimit) }}
	if err := g.pipe(ctx, c, stdout); err != nil {
		return nil, err
	}
	return stdout.buf.Bytes(), nil
}

// pipe runs git and writes its standard output to w.
func (g *git) pipe(ctx context.Context, c command, w io.Writer) error {
	if g.bin == "" {
		return errNoGit
	}
	stderr := &tail{}
	cmd := g.command(ctx, c)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, w, stderr
	// The kernel kills git when the thread that started git ends, so this thread must live longer
	// than git.
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

// command prepares a call of git in a new process group. The group is killed when ctx ends.
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

// lineURL is the URL with which git fetches over a line, a socket to the process that answers for the source.
// Descriptor 3 of git is the line; git gets no other descriptor except standard input, output and error.
const lineURL = "fd::3"

// answerFromEnvironment is a credential helper for git. It prints the user name and password that
// are in the environment of git. They are not in its arguments, because every user of the machine
// can read the arguments of a process. The helper is configured for one host, so that git sends no
// password to another host after a redirection.
const answerFromEnvironment = `!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$BELAY_GIT_USERNAME" "$BELAY_GIT_PASSWORD"; }; f`

// remoteEnvironment lists the environment variables that only a git that connects to another
// machine inherits.
var remoteEnvironment = []string{
	"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
}

// environment returns the environment of a git command; git inherits only the variables named here.
func (g *git) environment(c command) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + g.home, "XDG_CONFIG_HOME=" + g.home,
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_OPTIONAL_LOCKS=0", "GIT_DEFAULT_REF_FORMAT=files",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_ALLOC_LIMIT=2g", // git fails on a larger object, which could exhaust the memory
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
