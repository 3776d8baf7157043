package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// Marker is the environment variable that carries the run id in every process of
// a run.
const Marker = "BELAY_RUN"

// DefaultGrace is the time between SIGTERM and SIGKILL where a command names none.
const DefaultGrace = 10 * time.Second

// defaultDrain bounds how long, after the last process of a run has ended, Output
// may take for what is still in the pipes.
const defaultDrain = 10 * time.Second

// defaultPath is the PATH of a command that is given none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Command says what to run and how.
type Command struct {
	// ID is the run's id, 1 to 128 letters, digits, '.', '_' and '-'. It marks every
	// process of the run.
	ID string
	// Args is the command and its arguments. The command is looked up in the PATH of
	// its own environment unless it has a slash.
	Args []string
	// Dir is the working directory, an absolute path.
	Dir string
	// Inherit names the variables that are copied from this process's environment,
	// where they are set. Nothing else is inherited. Names that begin with GIT_ or
	// BELAY_ are refused: they would point git, or a nested belay, at the wrong place.
	Inherit []string
	// Env holds variables with their values; it wins over Inherit.
	Env map[string]string
	// Stdin is what the command reads; with nil it reads from /dev/null.
	Stdin []byte
	// Output is given what the command and its descendants write, in order of
	// arrival, one call at a time. While it runs, the writers wait once the pipe is
	// full. An error cancels the command, with that error as the cause. Its context
	// ends when nobody waits for it any more. With nil, output is discarded.
	Output func(ctx context.Context, c Chunk) error
	// Timeout counts from the moment the command was started, frozen time left out;
	// 0 means none.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 means DefaultGrace, a negative
	// one none.
	Grace time.Duration
	// Drain bounds how long Output may take after the last process has ended; 0 means
	// 10 s.
	Drain time.Duration
	// Isolation forces one kind; Auto takes the strongest that works.
	Isolation Isolation
	// User runs the command as somebody else; only root can. See [Pool].
	User *host.User
	// Limits bound what the run may use.
	Limits Limits
	// Writable, if there is any, lists the directories in which the run may write: all
	// else on this machine is read-only to it. In a namespace a User gets to them
	// whatever the modes of what leads there say.
	Writable []string
	// Hidden lists files and directories that the run does not see. In a namespace an
	// empty one takes the place of each. Without, Landlock denies the contents of each,
	// and the listing of what is above a directory; what is made beside one later is
	// hidden as well. A path that is not there is passed over.
	Hidden []string
	// Readable lists what stays visible below the Hidden, to be read only. Of two paths
	// here, in Writable and in Hidden the deeper one rules over what is below it.
	Readable []string
	// Network is what the run can reach.
	Network Network
	// Proxy serves a [ProxiedNetwork] until its listener is closed, which the tree does
	// at its end. Wait waits for it, within Drain. ProxyToken is the password in the
	// address of the proxy that the command is given: where Walls.Closed is not a
	// namespace, others on this machine can reach the listener too, so Proxy demands it
	// of every request.
	Proxy      func(net.Listener)
	ProxyToken string
	// Direct are the hosts that programs are to reach without the proxy, in no_proxy:
	// names of the run's own loopback.
	Direct []string
	// Insist lists the walls without which the command is not started: Start returns a
	// [*WallError] then. Whatever is not in it is had as far as the machine allows, and
	// the Result says how far.
	Insist []Wall
	// Files are further descriptors of the command: 3, 4 and so on. A directory among
	// them is opened anew in the command's own view of the machine, so that a seal holds
	// for it too. The caller keeps its own.
	Files []*os.File
	// Helper runs a part of this very program instead of a program from the PATH: the
	// [Helper] that was given to [Main] under the name Args[0].
	Helper bool
	// Tmp is the directory that the run sees as /tmp, /var/tmp and /dev/shm, as far
	// as none of Writable lies there. It goes with Writable. Without a mount namespace
	// those are the machine's, which the run may not write: programs have to go by TMPDIR.
	Tmp string

	freezer string   // forces a means of freezing; for tests
	bounds  string   // forces a means of limiting; for tests
	without []string // means that are not made use of: landlock, filter; for tests
}

// Chunk is a piece of output. Data is valid only until Output returns.
type Chunk struct {
	Stream Stream
	Data   []byte
}

// Stream tells standard output from standard error.
type Stream int

// The outputs of a command.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Isolation is how the processes of a command are kept together; see the package
// documentation. Its text is meant for people.
type Isolation string

// The kinds of isolation; see the package documentation.
const (
	Auto          Isolation = ""
	PIDNamespace  Isolation = "pid namespace"
	UserNamespace Isolation = "user and pid namespace"
	Subreaper     Isolation = "subreaper"
)

// ErrNoCommand means that there is nothing to run.
var ErrNoCommand = errors.New("no command given")

var runID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func (c *Command) validate() error {
	switch {
	case len(c.Args) == 0 || c.Args[0] == "":
		return ErrNoCommand
	case !runID.MatchString(c.ID):
		return fmt.Errorf("run id %q: want 1 to 128 letters, digits, '.', '_' or '-'", c.ID)
	case !filepath.IsAbs(c.Dir):
		return fmt.Errorf("working directory %q is not an absolute path", c.Dir)
	case strings.ContainsRune(c.Dir, 0):
		return fmt.Errorf("working directory %q contains a NUL byte", c.Dir)
	}
	for i, arg := range c.Args {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("argument %d of %q contains a NUL byte", i, c.Args[0])
		}
	}
	if err := errors.Join(c.validatePaths(), c.Limits.validate(), c.validateNetwork()); err != nil {
		return err
	}
	for _, wall := range c.Insist {
		if !slices.Contains(allWalls, wall) {
			return fmt.Errorf("unknown wall %q", wall)
		}
	}
	switch c.Isolation {
	case Auto, PIDNamespace, UserNamespace, Subreaper:
		return nil
	}
	return fmt.Errorf("unknown isolation %q", c.Isolation)
}

func (c *Command) validatePaths() error {
	for what, list := range map[string][]string{
		"writable directory": c.Writable, "directory for temporary files": {c.Tmp}, "hidden path": c.Hidden,
		"readable path": c.Readable,
	} {
		for _, path := range list {
			if path == "" && what == "directory for temporary files" {
				continue
			}
			if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || strings.ContainsRune(path, 0) {
				return fmt.Errorf("%s %q: want a clean, absolute path, and not /", what, path)
			}
		}
	}
	return nil
}

func (c *Command) grace() time.Duration {
	switch {
	case c.Grace == 0:
		return DefaultGrace
	case c.Grace < 0:
		return 0
	}
	return c.Grace
}

func (c *Command) drain() time.Duration {
	if c.Drain <= 0 {
		return defaultDrain
	}
	return c.Drain
}

// Basics names the variables that nearly every command wants to inherit and that
// hold no secret.
func Basics() []string {
	return []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "SHELL"}
}

// environment builds the command's environment from nothing: the mark, what c
// inherits out of from, what c sets, and the way to the proxy.
func (c *Command) environment(from []string, proxy map[string]string) ([]string, error) {
	vars := map[string]string{"PATH": defaultPath}
	for _, name := range c.Inherit {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("inherit %q: %w", name, err)
		}
		if strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "BELAY_") {
			return nil, fmt.Errorf("inherit %q: a variable of git or belay is never inherited; give its value", name)
		}
		for _, entry := range from {
			if value, ok := strings.CutPrefix(entry, name+"="); ok {
				vars[name] = value
				break
			}
		}
	}
	for name, value := range c.Env {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("set %q: %w", name, err)
		}
		if strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("set %q: the value contains a NUL byte", name)
		}
		if name == Marker {
			return nil, fmt.Errorf("set %q: the mark of the run cannot be set", name)
		}
		vars[name] = value
	}
	maps.Copy(vars, proxy)
	env := make([]string, 0, len(vars)+1)
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return append([]string{Marker + "=" + c.ID}, env...), nil
}

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return errors.New("this is not the name of a variable")
	}
	return nil
}
