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

// DefaultGrace is the time between SIGTERM and SIGKILL if the command sets none.
const DefaultGrace = 10 * time.Second

// defaultDrain bounds how long after the end of a run's last process Output may take to receive the
// rest of the pipes' content.
const defaultDrain = 10 * time.Second

// defaultPath is the PATH of a command whose environment sets none.
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
	// Inherit names the variables that are copied from this process's environment, if they are set.
	// No other variable is inherited. Names that begin with GIT_ or BELAY_ are refused: their
	// values would point git, or a nested belay, at the wrong place.
	Inherit []string
	// Env holds variables with their values; it overrides Inherit.
	Env map[string]string
	// Stdin is what the command reads; with nil it reads from /dev/null.
	Stdin []byte
	// Output receives the bytes that the command and its descendants write, in order of arrival,
	// one call at a time. During a call the writers wait once the pipe is full. An error cancels
	// the command, with that error as the cause. The context of Output ends when Wait has returned.
	// With nil, output is discarded.
	Output func(ctx context.Context, c Chunk) error
	// Timeout counts from the start of the command, without the time in which it is frozen; 0 means
	// none.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 means DefaultGrace, a negative
	// one none.
	Grace time.Duration
	// Drain bounds how long Output may take after the last process has ended; 0 means
	// 10 s.
	Drain time.Duration
	// Isolation forces one kind; Auto takes the strongest that works.
	Isolation Isolation
	// User is the user that the command runs as, if it is not this process's own; only root can set
	// it. See [Pool].
	User *host.User
	// Limits bound what the run may use.
	Limits Limits
	// Writable, if it is not empty, lists the directories in which the run may write: everything
	// else on this machine is read-only to the run. In a mount namespace, User reaches these
	// directories whatever the modes of their parent directories are.
	Writable []string
	// Hidden lists files and directories that the run cannot see. In a mount namespace each is
	// covered by an empty one. Without a mount namespace Landlock denies access to their contents
	// and to listing the directories above them; files that are made later beside a hidden one are
	// hidden as well. A path that does not exist is skipped.
	Hidden []string
	// Readable lists paths below the Hidden ones that stay visible, read-only. If two paths in
	// Readable, Writable and Hidden overlap, the deeper one decides for everything below it.
	Readable []string
	// Network is what the run can reach.
	Network Network
	// Proxy serves a [ProxiedNetwork] until its listener is closed, which the tree does when the
	// run ends. Wait waits until Proxy has returned, at most for Drain. ProxyToken is the password
	// in the proxy address that the command gets: where Walls.Closed is not a namespace, other
	// processes on this machine can reach the listener too, so Proxy must demand the token in every
	// request.
	Proxy      func(net.Listener)
	ProxyToken string
	// Direct lists the hosts that programs reach without the proxy (no_proxy): names for the run's
	// own loopback.
	Direct []string
	// Insist lists the walls without which the command is not started: Start then returns a
	// [*WallError]. Walls that are not in the list are applied as far as the machine supports them;
	// the Result says which were.
	Insist []Wall
	// Files are further descriptors for the command: 3, 4 and so on. A directory among them is
	// opened again in the command's own view of the file system, so that read-only mounts apply to
	// it too. The caller keeps its own descriptors.
	Files []*os.File
	// Helper runs a part of this program instead of a program from the PATH: the [Helper] that was
	// passed to [Main] under the name Args[0].
	Helper bool
	// Tmp is the directory that the run sees as /tmp, /var/tmp and /dev/shm, except where a
	// directory of Writable lies below one of these. It is used together with Writable. Without a
	// mount namespace the run sees the machine's directories, in which it may not write: programs
	// then need TMPDIR.
	Tmp string

	freezer string   // forces a means of freezing; for tests
	bounds  string   // forces a means of limiting; for tests
	without []string // means that must not be used: landlock, filter; for tests
}

// Chunk is a piece of output. Data is valid only until Output returns.
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

// Isolation is the means by which the processes of a command are kept together; see the package
// documentation. Its text is meant for people.
type Isolation string

// The kinds of isolation; see the package documentation.
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

// Basics names the variables that nearly every command needs and that contain no secret.
func Basics() []string {
	return []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "SHELL"}
}

// environment builds the command's environment from an empty one: the run's mark, the variables of
// Inherit that are in from, the variables of Env, and those of the proxy.
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
