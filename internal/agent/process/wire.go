package process

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// order is the first message to a supervisor: the command to run. Strings may contain any bytes, so
// the messages are encoded as gob and not as JSON.
type order struct {
	ID        string
	Args      []string
	Dir       string
	Env       []string
	Grace     time.Duration
	Isolation Isolation
	Freezer   string
	Owner     host.User // the user of the parent process
	User      *host.User
	Limits    Limits
	Bounds    string
	Writable  []string
	Readable  []string
	Hidden    []string
	Secrets   []string
	Tmp       string
	Helper    bool
	Network   Network
	Port      int // port of the proxy, if the proxy listens on the host's loopback
	Insist    []Wall
	Without   []string
	// Files is the path of each descriptor in Command.Files that is a directory, and "" for every
	// other descriptor.
	Files []string

	// The supervisor sets these. loose are the secrets that only Landlock can keep hidden; exempt are
	// the secrets that stay hidden only until they are replaced.
	loose, exempt []string
}

// request is any message from the parent to the supervisor after the first one. The first message
// is an order.
type request struct{ Do verb }

type verb int

const (
	stop   verb = iota + 1 // send SIGTERM, and SIGKILL after the grace period
	kill                   // send SIGKILL at once
	freeze                 // freeze the tree; the reply is froze
	thaw                   // thaw the tree; the reply is thawed
)

// report is a message that the supervisor sends to the parent. The first report has the event
// unable, unstarted, unwalled or started.
type report struct {
	Event event
	// Text is the reason in the events unable, unstarted and unwalled. In the events froze and
	// thawed, Text is the error; empty if there was no error.
	Text string
	// Code is set in the event unstarted: the exit code that a shell would return.
	Code int
	// Freezer, Cgroup, Version and Walls are set in the event started. Cgroup is the directory of the
	// cgroup, and Version is the version of cgroups; both are empty if the run has no cgroup.
	Freezer, Cgroup string
	Version         int
	Walls           Walls
	// Wall is set in the event unwalled: the missing wall (a restriction of the sandbox).
	Wall Wall
	// Status is set in the event exited: the wait status of the command. Stopped says that the
	// supervisor got a request to end the command before the command ended.
	Status  uint32
	Stopped bool
	Elapsed time.Duration
	// Stragglers, Usage and Exceeded (the limits that the run exceeded) are set in the event gone.
	Stragglers int
	Usage      Usage
	Exceeded   string
}

type event int

const (
	unable    event = iota + 1 // the isolation does not work on this machine; nothing was started
	unstarted                  // the command could not be started
	unwalled                   // a wall is missing on which the command insists
	started
	froze
	thawed
	exited // the command has ended
	gone   // all descendants of the command have ended too
)

// wire is one end of the socket between parent and supervisor.
type wire struct {
	conn *net.UnixConn
	enc  *gob.Encoder
	dec  *gob.Decoder
}

// openWire opens one end of the socket, and closes f, of which the wire has a copy.
func openWire(f *os.File) (*wire, error) {
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is no socket of the machine", conn), conn.Close())
	}
	return &wire{conn: socket, enc: gob.NewEncoder(socket), dec: gob.NewDecoder(socket)}, nil
}

// send sends a message. It returns an error if it cannot write the message in the given time.
func (w *wire) send(message any, within time.Duration) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	return w.enc.Encode(message)
}
