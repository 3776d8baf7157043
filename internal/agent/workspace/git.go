package workspace

import (
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
const maxOutput = 256 << 20

// git runs the git of this machine, away from everybody's configuration.
type git struct {
	bin  string // absolute; "" if there is none
	home string // an empty directory
	// reader is the configuration for reading a local source: whoever named it
	// wants it read, also if it belongs to another user.
	reader string
}

// command is one call of git.
type command struct {
	dir   string // GIT_DIR; "" for none
	tree  string // work tree; "" for none
	index string // index file; "" for the one of dir
	// remote is the source that it reads; nil for none.
	remote *source
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

// run calls git and returns what it wrote to standard output.
func (g *git) run(ctx context.Context, c command) ([]byte, error) {
	if g.bin == "" {
		return nil, &belay.Error{Code: belay.CodeUnavailable, Message: "git is not installed, or not on PATH; a workspace with a repository needs it"}
	}
	limit := c.limit
	if limit == 0 {
		limit = maxOutput
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout := &bounded{limit: limit, full: func() { cancel(errLimit) }}
	stderr := &tail{}
	cmd := g.command(ctx, c)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, stdout, stderr
	// The signal at our death follows the thread that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("git %s: %w", c.args[0], cause)
	}
	if err != nil {
		return nil, &gitError{command: c.args[0], err: err, text: stderr.text(c.remote)}
	}
	return stdout.buf.Bytes(), nil
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
	if c.tree != "" {
		cmd.Dir = c.tree
	}
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// answerFromEnvironment is a helper that hands git what is in its environment, where
// only this user's processes can read it, and not in arguments, where everybody can.
// It is set for one host, so that a redirection to another gets nothing.
const answerFromEnvironment = `!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$BELAY_GIT_USERNAME" "$BELAY_GIT_PASSWORD"; }; f`

// remoteEnvironment is passed on to a git that talks to another machine.
var remoteEnvironment = []string{
	"SSH_AUTH_SOCK", "SSH_AGENT_PID",
	"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
}

// environment builds the whole environment of a git; nothing is inherited but by
// name.
func (g *git) environment(c command) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + g.home, "XDG_CONFIG_HOME=" + g.home, "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_OPTIONAL_LOCKS=0", "GIT_DEFAULT_REF_FORMAT=files",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
		"GIT_ALLOC_LIMIT=2g", // an object beyond this is an attack on the memory
	}
	if c.index != "" {
		env = append(env, "GIT_INDEX_FILE="+c.index)
	}
	if c.remote == nil {
		return append(env, "GIT_ALLOW_PROTOCOL=file")
	}
	if c.remote.local {
		return append(env, "GIT_ALLOW_PROTOCOL=file", "GIT_CONFIG_GLOBAL="+g.reader)
	}
	env = append(env, "GIT_ALLOW_PROTOCOL=https:ssh", "GIT_SSH_VARIANT=ssh",
		"GIT_SSH_COMMAND=ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=15",
		"BELAY_GIT_USERNAME="+c.remote.user, "BELAY_GIT_PASSWORD="+c.remote.password)
	for _, name := range remoteEnvironment {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if file := os.Getenv("SSL_CERT_FILE"); file != "" { // which git knows by another name
		env = append(env, "GIT_SSL_CAINFO="+file)
	}
	return env
}
