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

// Marker is the environment variable that contains the run id in every process of a run.
const Marker = "BELAY_RUN"

// DefaultGrace is the time between SIGTERM and SIGKILL if Command.Grace is 0.
const DefaultGrace = 10 * time.Second

// defaultDrain is the time that Output gets, after the end of a run's last process, to receive the
// rest of the output.
const defaultDrain = 10 * time.Second

// defaultPath is the PATH of a command if neither Inherit nor Env has a PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Command describes a command and how to run it.
type Command struct {
	// ID is the run's id: 1 to 128 letters, digits, '.', '_' and '-'. Every process of the run has
	// it in its environment.
	ID string
	// Args is the command and its arguments. If the command has no slash, it is looked up in the
	// PATH of the command's environment.
	Args []string
	// Dir is the working directory, an absolute path.
	Dir string
	// Inherit names the variables that are copied from this process's environment, if they are set.
	// No other variable is inherited. Names that begin with GIT_ or BELAY_ are refused, because
	// their values could direct git, or a belay that the command starts, to the wrong repository or
	// server.
	Inherit []string
	// Env holds variables with their values; it overrides Inherit.
	Env map[string]string
	// Stdin is the input of the command; if nil, the command reads Input, or /dev/null if Input is
	// nil too. The caller keeps and must close Input.
	Stdin []byte
	Input *os.File
	// Output receives the bytes that the command and its descendants write, in the order of arrival.
	// It is called for one chunk at a time. While a call runs, a process that writes into a full pipe
	// waits. If Output returns an error, the command is cancelled with that error as the cause. The
	// context of Output ends when Wait has returned. If Output is nil, the output is discarded.
	Output func(ctx context.Context, c Chunk) error
	// Timeout is the time limit from the start of the command, not counting the time in which the
	// command is frozen; 0 means no limit.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 means DefaultGrace, and a negative value
	// means that SIGKILL is sent at once.
	Grace time.Duration
	// Drain is how long Output may still receive the rest of the output after the last process has
	// ended; 0 means 10 s.
	Drain time.Duration
	// Isolation requires one kind of isolation; Auto uses the strongest kind that works.
	Isolation Isolation
	// User is the user that the command runs as; nil for this process's user. Only root can set
	// another user. See [Pool].
	User *host.User
	// Limits are the limits for all processes of the run together.
	Limits Limits
	// Writable, if not empty, lists the only directories in which the run may write: all other
	// files on this machine are then read-only to the run. In a mount namespace, User can reach
	// these directories whatever the modes of their parent directories are.
	Writable []string
	// Hidden lists files and directories that the run cannot see. In a mount namespace an empty
	// file or directory covers each hidden path. Without a mount namespace Landlock forbids the run
	// to read hidden paths and to list the directories above them; Landlock also hides files that
	// are made later beside a hidden path. A path that does not exist is skipped.
	Hidden []string
	// Secrets lists files that are hidden like the files in Hidden, and stay hidden if they are
	// replaced, deleted or made while the run lasts; a path that does not exist is not skipped. In a
	// mount namespace an empty directory covers the directory of each secret, and the other entries
	// of the directory are mounted there again, so entries that are made later are not visible. If a
	// path is a symbolic link, this also applies to the target of the link.
	Secrets []string
	// Readable lists paths below the paths in Hidden that stay visible, read-only. If a path in
	// Readable, Writable or Hidden lies below another of these paths, the deeper path determines
	// the access to everything below it.
	Readable []string
	// Network is the network that the run can reach.
	Network Network
	// Proxy serves a [ProxiedNetwork] until its listener is closed, which happens when the run
	// ends. Wait waits until Proxy has returned, at most for Drain. ProxyToken is the password in
	// the proxy address that the command gets. Proxy must require the token in every request,
	// because without a network namespace (see Walls.Closed) other processes on this machine can
	// also connect to the listener.
	Proxy      func(net.Listener)
	ProxyToken string
	// Direct lists the hosts to which programs connect without the proxy (no_proxy). It is meant
	// for names of the run's own loopback.
	Direct []string
	// Insist lists the walls (restrictions of the sandbox) that the caller requires: if one of them
	// is not available, Start does not start the command and returns a [*WallError]. Walls that are
	// not listed are applied if the machine supports them. The Result lists the walls that were
	// applied.
	Insist []Wall
	// Files are the descriptors 3, 4 and so on of the command. If a file is a directory, it is opened
	// again in the command's own view of the file system, so that read-only mounts also apply to
	// this directory. The caller keeps its own descriptors and must close them.
	Files []*os.File
	// Helper runs a function of this program instead of a program from the PATH: the [Helper] with
	// the name Args[0] that was passed to [Main].
	Helper bool
	// Tmp is the directory that the run sees as /tmp, /var/tmp and /dev/shm, except for a directory
	// of Writable below one of these paths. It has an effect only together with Writable. Without a
	// mount namespace the run sees the /tmp of the machine and may not write there, so its programs
	// need the variable TMPDIR.
	Tmp string

	freezer string   // the only means of freezing that may be used; for tests
	bounds  string   // the only means of limiting that may be used; for tests
	without []string // the means that must not be used: landlock, filter; for tests
}

// Chunk is a part of the output of a command. Data is valid only until Output returns.
type Chunk struct {
	Stream Stream
	Data   []byte
}

// Stream is standard output or standard error.
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

// Isolation is the mechanism that keeps the processes of a command together, such as a PID
// namespace; the package documentation describes each mechanism. The text of an Isolation is meant
// for people.
type Isolation string

// The kinds of isolation. The package documentation describes them.
const (
	Auto          Isolation = ""
	PIDNamespace  Isolation = "pid namespace"
	UserNamespace Isolation = "user and pid namespace"
	Subreaper     Isolation = "subreaper"
)

// ErrNoCommand means that Args is empty.
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
		"secret file": c.Secrets, "readable path": c.Readable,
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

// Basics names the variables that nearly every command needs and that contain no secret.
func Basics() []string {
	return []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "SHELL"}
}

// environment returns the command's environment: the marker of the run, the variables in Inherit
// with their values in from, the variables in Env, and the variables of the proxy.
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
