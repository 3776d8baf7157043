package process

import (
	"encoding/gob"
	"net"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// order is the first message to a supervisor: what to run. Strings may hold any
// bytes, which is why the messages are gob and not JSON.
type order struct {
	ID        string
	Args      []string
	Dir       string
	Env       []string
	Grace     time.Duration
	Isolation Isolation
	Freezer   string
	Owner     host.User // whom the parent runs as
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
	// Files says of each further descriptor where its directory is, or nothing.
	Files []string
}

// request is any later message to a supervisor.
type request struct{ Do verb }

type verb int

const (
	stop   verb = iota + 1 // SIGTERM, after the grace SIGKILL
	kill                   // SIGKILL now
	freeze                 // answered by froze
	thaw                   // answered by thawed
)

// report is what a supervisor says. The first one is unable, unstarted,
// unwalled or started.
type report struct {
	Event event
	// Text says why: unable, unstarted, unwalled, and froze and thawed where they did not work.
	Text string
	// Code is the exit code a shell would give: unstarted.
	Code int
	// Freezer, Cgroup (a directory, or nothing) and its Version, and the Walls: started.
	Freezer, Cgroup string
	Version         int
	Walls           Walls
	// Wall is the one that is missing: unwalled.
	Wall Wall
	// Status is the wait status, Stopped tells whether the supervisor had been asked
	// to end the command before it ended: exited.
	Status  uint32
	Stopped bool
	Elapsed time.Duration
	// Stragglers, Usage and which limits were Exceeded: gone.
	Stragglers int
	Usage      Usage
	Exceeded   string
}

type event int

const (
	unable    event = iota + 1 // the isolation does not work here; nothing was started
	unstarted                  // the command could not be started
	unwalled                   // a wall is not to be had on which the command insists
	started
	froze
	thawed
	exited // the command has ended
	gone   // so have all its descendants
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

// send gives up after a while: the other side reads at once or not at all.
func (w *wire) send(message any, within time.Duration) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	return w.enc.Encode(message)
}
