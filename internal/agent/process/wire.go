package process

import (
	"encoding/gob"
	"net"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// order is the first message to a supervisor: the command to run. Strings may contain any bytes, so
// the messages are gob and not JSON.
type order struct {
	ID        string
	Args      []string
	Dir       string
	Env       []string
	Grace     time.Duration
	Isolation Isolation
	Freezer   string
	Owner     host.User // the user that the parent runs as
	User      *host.User
	Limits    Limits
	Bounds    string
	Writable  []string
	Readable  []string
	Hidden    []string
	Tmp       string
	Helper    bool
	Network   Network
	Port      int // of the proxy on the host's loopback, if it listens there
	Insist    []Wall
	Without   []string
	// Files is the path of each further descriptor that is a directory, and "" for the others.
	Files []string
}

// request is any later message to a supervisor.
type request struct{ Do verb }

type verb int

const (
	stop   verb = iota + 1 // SIGTERM, after the grace period SIGKILL
	kill                   // SIGKILL at once
	freeze                 // the reply is froze
	thaw                   // the reply is thawed
)

// report is a message of a supervisor. The first one is unable, unstarted, unwalled or started.
type report struct {
	Event event
	// In unable, unstarted and unwalled, Text is the reason; in froze and thawed, the error if
	// there was one.
	Text string
	// In unstarted, Code is the exit code that a shell would give.
	Code int
	// In started: Freezer, Cgroup (a directory, or nothing), its Version, and the Walls.
	Freezer, Cgroup string
	Version         int
	Walls           Walls
	// In unwalled, Wall is the missing one.
	Wall Wall
	// In exited, Status is the wait status, and Stopped tells whether the supervisor had been asked
	// to end the command before it ended.
	Status  uint32
	Stopped bool
	Elapsed time.Duration
	// In gone: Stragglers, Usage and the limits that were Exceeded.
	Stragglers int
	Usage      Usage
	Exceeded   string
}

type event int

const (
	unable    event = iota + 1 // the isolation does not work here; nothing was started
	unstarted                  // the command could not be started
	unwalled                   // a wall that the command insists on is not available
	started
	froze
	thawed
	exited // the command has ended
	gone   // all its descendants have ended too
)

// wire is one end of the socket between parent and supervisor.
type wire struct {
	conn net.Conn
	enc  *gob.Encoder
	dec  *gob.Decoder
}

func newWire(conn net.Conn) *wire {
	return &wire{conn: conn, enc: gob.NewEncoder(conn), dec: gob.NewDecoder(conn)}
}

// send gives up after the time within: the other side reads at once or not at all.
func (w *wire) send(message any, within time.Duration) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	return w.enc.Encode(message)
}
