package chaos

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// record is all data that the checkers read. It can be written to a file and checked again later.
type record struct {
	Store   string        `json:"store"`
	Servers int           `json:"servers"`
	Seed    uint64        `json:"seed"`
	For     time.Duration `json:"for"`
	Load    load          `json:"load"`

	// The results of the calls of clients and workers.
	Told []entry            `json:"told"`
	Seen []promise.Sighting `json:"seen"`
	// The content of the store.
	Tales    []*tale               `json:"tales"`
	Sessions []belay.Worker        `json:"sessions"`
	Letters  []promise.Letter      `json:"letters"`
	States   map[belay.State]int64 `json:"states"` // the number of executions by state, counted in the store
	// The open executions at some moments of the run.
	Looks []look `json:"looks"`
	// Gates is the limit that all servers share, at some moments of the run and in the end.
	Gates []gateLook `json:"gates"`
	// Modes is the resource that all servers share, at some moments of the run and in the end. Noted is the
	// number of events of the resource in the table audit, by action.
	Modes []modeLook     `json:"modes"`
	Noted map[string]int `json:"noted"`

	// The faults.
	Faults  map[string]int `json:"faults"`
	Trouble []span         `json:"trouble"`
	Cannot  []string       `json:"cannot"` // faults that this machine cannot cause
	Harm    []span         `json:"harm"`   // the times in which a worker was killed or stopped, with the worker's name
	Deaths  []death        `json:"deaths"`
	Began   time.Time      `json:"began"`
	Healed  time.Time      `json:"healed"`
	Settled time.Time      `json:"settled"`
	Read    time.Time      `json:"read"` // when the sessions were read
	Open    []string       `json:"open"` // executions that had not ended when the test stopped waiting for them

	// MessageTTL is how long messages wait in RabbitMQ; 0 without RabbitMQ.
	MessageTTL time.Duration `json:"message_ttl,omitempty"`

	Times  map[string]int `json:"times"` // the number of events that are not faults, by their name
	Agents []*agentTale   `json:"agents"`
	// The results after the end of the load.
	Retired *retired       `json:"retired"`
	Bad     map[string]int `json:"bad"`    // bad inputs, by the status of their answers
	Passed  []string       `json:"passed"` // bad inputs that were not refused
}

// load is the amount of work, in root executions a second.
type load struct {
	Measured float64 `json:"measured"` // the measured throughput without faults
	Asked    float64 `json:"asked"`    // the rate of submissions under faults
}

// entry is one call with the result that its caller got, or an effect of a workflow.
type entry = promise.Entry

const (
	ok      = promise.OK
	refused = promise.Refused
)

// look lists the executions that had not ended at one moment, and the sessions at that moment.
type look struct {
	At       time.Time         `json:"at"`
	Open     []belay.Execution `json:"open"` // without the payloads
	Sessions []belay.Worker    `json:"sessions"`
}

// span is the period of a fault. If the end of the period is not known yet, To is zero.
type span struct {
	What string    `json:"what"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// death is the end of a worker's process.
type death struct {
	PID int       `json:"pid"`
	At  time.Time `json:"at"` // when the process was killed, or got SIGTERM
}

// agentTale is the history of one command of a job.
type agentTale struct {
	Execution belay.ExecutionID `json:"execution"`
	Name      string            `json:"name"`
	Cancelled bool              `json:"cancelled,omitempty"`
	// one entry for the command's own process, and one for the process that left the command's
	// session
	Trees []ticks `json:"trees"`
	Alive []int   `json:"alive,omitempty"` // the pids that still exist at the end
}

// ticks is what one process of a command has written.
type ticks struct {
	PIDs    []int           `json:"pids"` // the processes that wrote; exactly one if nothing went wrong
	Numbers int             `json:"numbers"`
	Torn    string          `json:"torn,omitempty"` // describes the place where numbers are missing
	Gaps    []time.Duration `json:"gaps,omitempty"` // the times without output that were long enough to be a freeze
}

func (r *record) save(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	return errors.Join(json.NewEncoder(z).Encode(r), z.Close(), f.Close())
}

func readRecord(file string) (*record, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	r := &record{}
	err = json.NewDecoder(z).Decode(r)
	_, rest := io.Copy(io.Discard, z) // reading to the end verifies the checksum
	return r, errors.Join(err, rest)
}
