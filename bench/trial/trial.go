package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"
)

// Measure names what is measured.
type Measure string

// The measures.
const (
	Ceiling  Measure = "ceiling"  // what the database does without anybody: single commits and bulk rows
	Drain    Measure = "drain"    // executions that wait already, worked off
	Flow     Measure = "flow"     // executions submitted, worked off and awaited
	Steps    Measure = "steps"    // steps of executions of ten, each saved before the next
	Submit   Measure = "submit"   // single submits, each acknowledged
	Bulk     Measure = "bulk"     // submits of a thousand
	Latency  Measure = "latency"  // from the call that submits to the first line of the function
	Takeover Measure = "takeover" // from the kill of a worker to the first line of the function on another
	Loaded   Measure = "loaded"   // Drain among many that have ended and many that wait
	Hold     Measure = "hold"     // what idle executions cost that are owned
	Idle     Measure = "idle"     // what a server costs that nobody uses
	Lease    Measure = "lease"    // a lone lease beside a lone commit
	Overload Measure = "overload" // ten times as much as can be worked off
	Jobs     Measure = "jobs"     // coding agents at once on one repository
)

// Variant is a contender's settings.
type Variant string

// The variants. Default is what somebody gets who sets nothing but the store's
// address and the concurrency; Tuned is the best that is known.
const (
	Default Variant = "default"
	Tuned   Variant = "tuned"
	HTTP    Variant = "http" // Default, with server and worker apart
	Own     Variant = "own"  // as the contender measures itself, with other numbers than everybody has here

	// Of Jobs: Default one job at a time; a worktree for each; one tree for all, in turn.
	Single   Variant = "single"
	Worktree Variant = "worktree"
	Reset    Variant = "reset"
)

// Request asks for a trial.
type Request struct {
	Contender string  `json:"contender"`
	Variant   Variant `json:"variant"`
	Measure   Measure `json:"measure"`
	// URL is an empty store: postgres://… or sqlite:DIR.
	URL string `json:"url"`
	// Dir is an empty directory for whatever else is needed.
	Dir string `json:"dir"`
	// Database is the pid of PostgreSQL's postmaster, 0 if it is elsewhere.
	Database int `json:"database,omitempty"`
	// Tools is the directory of PostgreSQL's programs, Belay the path of the
	// binary belay, "" if there is none.
	Tools string `json:"tools,omitempty"`
	Belay string `json:"belay,omitempty"`
	// N is how many executions, where that is set, and For how long to load,
	// where that is; Overload takes seven times that.
	N   int           `json:"n,omitempty"`
	For time.Duration `json:"for,omitempty"`
	// Rate is how many executions arrive a second, for Latency.
	Rate int `json:"rate,omitempty"`
	// TTL is for how long a worker that says nothing counts as alive, for
	// Takeover; 0 is the contender's default.
	TTL time.Duration `json:"ttl,omitempty"`
	// Repo is the repository of Jobs, AtOnce how many of them work at the same time,
	// and Think for how long each waits in all.
	Repo   string        `json:"repo,omitempty"`
	AtOnce int           `json:"at_once,omitempty"`
	Think  time.Duration `json:"think,omitempty"`
	// Role is what a process does that a trial starts beside itself.
	Role string `json:"role,omitempty"`
	// Profile is where to write a CPU profile.
	Profile string `json:"profile,omitempty"`
}

// Sample is what a trial found.
type Sample struct {
	// Rate is in units a second: executions, steps, submits or rows.
	Rate float64 `json:"rate,omitempty"`
	// CPU is microseconds of processor time for each unit, of this program and
	// the servers it started, and Database of the PostgreSQL server.
	CPU      float64 `json:"cpu_us,omitempty"`
	Database float64 `json:"database_cpu_us,omitempty"`
	// Times are the percentiles of what was timed.
	Times *Times `json:"times,omitempty"`
	// Values is whatever else was found, by name.
	Values map[string]float64 `json:"values,omitempty"`
	// Settings are those that differ from what Default has, with the reason.
	Settings string `json:"settings,omitempty"`
	// Counts is what the store holds afterwards.
	Counts []Count `json:"counts,omitempty"`
	// Error is why there is no figure.
	Error string `json:"error,omitempty"`
}

// Count is a number of rows in a store.
type Count struct {
	What string `json:"what"`
	Want int64  `json:"want"`
	Got  int64  `json:"got"`
	// More says that there may be more than Want.
	More bool `json:"more,omitempty"`
}

// Func carries out the measures of a contender. It returns ErrNone for a measure
// that the contender has nothing for.
type Func func(ctx context.Context, r Request) (Sample, error)

// ErrNone says that a contender has nothing that could be measured.
var ErrNone = errors.New("it has nothing like that")

// Serve answers the one Request at in with a Sample at out. contenders are those
// that this program has.
func Serve(in io.Reader, out io.Writer, contenders map[string]Func) error {
	var r Request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	f := contenders[r.Contender]
	if f == nil {
		return fmt.Errorf("there is no contender %q here", r.Contender)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := profiled(r.Profile, func() (Sample, error) { return f(ctx, r) })
	if err == nil {
		err = s.check()
	}
	if err != nil {
		s.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(s)
}

func profiled(path string, f func() (Sample, error)) (Sample, error) {
	if path == "" {
		return f()
	}
	file, err := os.Create(path)
	if err != nil {
		return Sample{}, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return Sample{}, errors.Join(err, file.Close())
	}
	s, err := f()
	pprof.StopCPUProfile()
	return s, errors.Join(err, file.Close())
}

// check refuses a Sample whose work was not done.
func (s Sample) check() error {
	for _, c := range s.Counts {
		if c.Got < c.Want || c.Got > c.Want && !c.More {
			return fmt.Errorf("the store holds %d %s, want %d", c.Got, c.What, c.Want)
		}
	}
	return nil
}
