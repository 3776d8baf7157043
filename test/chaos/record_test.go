package chaos

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/promise"
)

// record is all that the checkers see. It can be written to a file and judged
// again.
type record struct {
	Store   string        `json:"store"`
	Servers int           `json:"servers"`
	Seed    uint64        `json:"seed"`
	For     time.Duration `json:"for"`
	Load    load          `json:"load"`

	// What clients and workers were told.
	Told []entry            `json:"told"`
	Seen []promise.Sighting `json:"seen"`
	// What the store holds.
	Tales    []*tale               `json:"tales"`
	Sessions []belay.Worker        `json:"sessions"`
	Letters  []promise.Letter      `json:"letters"`
	States   map[belay.State]int64 `json:"states"` // executions by state, counted in the store
	// What was looked at on the way.
	Looks []look `json:"looks"`

	// What went wrong on purpose.
	Faults  map[string]int `json:"faults"`
	Trouble []span         `json:"trouble"`
	Cannot  []string       `json:"cannot"` // faults that this machine cannot have
	Harm    []span         `json:"harm"`   // times in which a worker was killed or stopped, by its name
	Deaths  []death        `json:"deaths"`
	Began   time.Time      `json:"began"`
	Healed  time.Time      `json:"healed"`
	Settled time.Time      `json:"settled"`
	Read    time.Time      `json:"read"` // when the sessions were read
	Open    []string       `json:"open"` // what had not ended then

	Times  map[string]int `json:"times"` // how often something else happened
	Agents []*agentTale   `json:"agents"`
	// What became of all of it in the end.
	Retired *retired       `json:"retired"`
	Bad     map[string]int `json:"bad"`    // bad inputs, by what they were answered
	Passed  []string       `json:"passed"` // those that were not refused
}

// load is how much work there was, in roots a second.
type load struct {
	Measured float64 `json:"measured"` // without faults
	Asked    float64 `json:"asked"`    // under them
}

// entry is one call as its caller was told of it, or something that a workflow did.
type entry = promise.Entry

const (
	ok      = promise.OK
	refused = promise.Refused
)

// look is what was found at one moment of what had not ended.
type look struct {
	At       time.Time         `json:"at"`
	Open     []belay.Execution `json:"open"` // without payloads
	Sessions []belay.Worker    `json:"sessions"`
}

// span is a time in which something could not be done. One that nobody knows
// the end of yet has none.
type span struct {
	What string    `json:"what"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// death is the end of a worker's process.
type death struct {
	PID int       `json:"pid"`
	At  time.Time `json:"at"` // when it was killed, or told to end
}

// agentTale is what became of one command.
type agentTale struct {
	Execution belay.ExecutionID `json:"execution"`
	Name      string            `json:"name"`
	Cancelled bool              `json:"cancelled,omitempty"`
	Trees     []ticks           `json:"trees"`           // its own process, and one that left its session
	Alive     []int             `json:"alive,omitempty"` // pids that are there at the end
}

// ticks is what one process of a command wrote.
type ticks struct {
	PIDs    []int           `json:"pids"` // who wrote; one, if all is well
	Numbers int             `json:"numbers"`
	Torn    string          `json:"torn,omitempty"` // where they do not follow each other
	Gaps    []time.Duration `json:"gaps,omitempty"` // longer than a freeze is at least
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
	_, rest := io.Copy(io.Discard, z) // its checksum
	return r, errors.Join(err, rest)
}
