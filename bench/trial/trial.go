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

// Measure is the name of a measure.
type Measure string

// The measures.
const (
	Ceiling   Measure = "ceiling"   // the database alone: single commits and bulk rows
	Drain     Measure = "drain"     // running executions that were submitted before the worker started
	Flow      Measure = "flow"      // submitting and running executions, and waiting for each
	Steps     Measure = "steps"     // steps, ten in each execution, each saved before the next begins
	Submit    Measure = "submit"    // submissions of one execution each, each acknowledged
	Bulk      Measure = "bulk"      // submissions of a thousand executions in one call
	Latency   Measure = "latency"   // the time from the submission to the first line of the function
	Takeover  Measure = "takeover"  // the time from the kill of a worker until another worker runs its execution
	Loaded    Measure = "loaded"    // Drain in a store with many ended and many waiting executions
	Hold      Measure = "hold"      // the cost of idle executions that have an owner
	Idle      Measure = "idle"      // the cost of an idle server
	Lease     Measure = "lease"     // the time to lock one execution, compared with one commit
	Overload  Measure = "overload"  // submitting at ten times the best rate that the system can sustain
	Gates     Measure = "gates"     // Drain with executions that all name one limit
	Parked    Measure = "parked"    // Flow beside many executions that wait at a full limit, compared with Flow alone
	Documents Measure = "documents" // the time that a chain of tasks and a fan-out take, as documents and in Go
	Jobs      Measure = "jobs"      // coding agents at once on one repository
	Register  Measure = "register"  // registrations of many processes in the registry of one machine
	Pages     Measure = "pages"     // the times of the pages of the web UI with many executions
)

// Variant names the settings with which a contender runs.
type Variant string

// The variants. Default sets only the store's address and the concurrency of a contender; Tuned has
// the best known settings.
const (
	Default Variant = "default"
	Tuned   Variant = "tuned"
	HTTP    Variant = "http"     // Default, with server and worker in separate processes
	Own     Variant = "own"      // the settings and numbers of the contender's own benchmark
	Three   Variant = "three"    // HTTP, with three servers on one database, each with a worker
	Rabbit  Variant = "rabbitmq" // Default, with dispatch through RabbitMQ

	// Variants of Jobs. Single: Belay's agent service with one job at a time. Worktree: a git
	// worktree for each job. Reset: one tree for all jobs, one after the other.
	Single   Variant = "single"
	Worktree Variant = "worktree"
	Reset    Variant = "reset"
)

// Request describes a trial to carry out.
type Request struct {
	Contender string  `json:"contender"`
	Variant   Variant `json:"variant"`
	Measure   Measure `json:"measure"`
	// URL is an empty store: postgres://… or sqlite:DIR.
	URL string `json:"url"`
	// Broker is the URL of RabbitMQ, for the variant Rabbit.
	Broker string `json:"broker,omitempty"`
	// Dir is an empty directory for other files.
	Dir string `json:"dir"`
	// Database is the pid of PostgreSQL's postmaster, 0 if it runs elsewhere.
	Database int `json:"database,omitempty"`
	// Tools is the directory of PostgreSQL's programs; Belay is the path of the belay binary, "" if
	// there is none.
	Tools string `json:"tools,omitempty"`
	Belay string `json:"belay,omitempty"`
	// At is when the processes of Register begin to measure.
	At time.Time `json:"at,omitzero"`
	// N is the number of executions, for measures with a fixed number, and the number of processes
	// for Register. For is how long the load lasts, for other measures; Overload takes seven times as long.
	N   int           `json:"n,omitempty"`
	For time.Duration `json:"for,omitempty"`
	// Rate is the number of executions that arrive in a second, for Latency.
	Rate int `json:"rate,omitempty"`
	// Limit is the limit that the executions of Gates and Parked name.
	Limit int `json:"limit,omitempty"`
	// Beside is a second empty store, for Parked, which measures both stores in turn, Pairs times.
	Beside string `json:"beside,omitempty"`
	Pairs  int    `json:"pairs,omitempty"`
	// TTL is how long a worker without heartbeats counts as alive, for Takeover; 0 is the
	// contender's default.
	TTL time.Duration `json:"ttl,omitempty"`
	// Repo is the repository of Jobs, AtOnce the number of jobs at a time, and Think how long each
	// job waits in all.
	Repo   string        `json:"repo,omitempty"`
	AtOnce int           `json:"at_once,omitempty"`
	Think  time.Duration `json:"think,omitempty"`
	// Workers is the number of connected workers of Pages, and Requests how often each page is requested.
	Workers  int `json:"workers,omitempty"`
	Requests int `json:"requests,omitempty"`
	// Role is the task of a further process that a trial starts; empty for the trial's own process.
	Role string `json:"role,omitempty"`
	// Profile is the file for a CPU profile.
	Profile string `json:"profile,omitempty"`
}

// Sample is the result of a trial.
type Sample struct {
	// Rate is in units a second: executions, steps, submits or rows.
	Rate float64 `json:"rate,omitempty"`
	// CPU is the processor time of one unit in microseconds, of this program and the servers that
	// it started. Database is the processor time of one unit in the PostgreSQL server.
	CPU      float64 `json:"cpu_us,omitempty"`
	Database float64 `json:"database_cpu_us,omitempty"`
	// Times are the percentiles of the measured times.
	Times *Times `json:"times,omitempty"`
	// Values are further results, by name.
	Values map[string]float64 `json:"values,omitempty"`
	// Parts are the times of single parts of what was measured, such as pages.
	Parts []Part `json:"parts,omitempty"`
	// Settings describes the settings that differ from those of the variant Default, with the
	// reason.
	Settings string `json:"settings,omitempty"`
	// Counts are numbers of rows in the store after the trial.
	Counts []Count `json:"counts,omitempty"`
	// Error says why there is no figure.
	Error string `json:"error,omitempty"`
}

// Part has the times of one part of what was measured: alone, and beside a load.
type Part struct {
	Name   string `json:"name"`
	Alone  *Times `json:"alone"`
	Beside *Times `json:"beside"`
	Bytes  int    `json:"bytes"` // of one answer
	// CPU is the processor time of one request in milliseconds, of the server and the database. Unlike the times, it
	// hardly depends on other programs of the machine.
	CPU float64 `json:"cpu_ms"`
	// Failed is the number of requests, of both kinds, that got no right answer.
	Failed int `json:"failed,omitempty"`
}

// Count is a number of rows in a store.
type Count struct {
	What string `json:"what"`
	Want int64  `json:"want"`
	Got  int64  `json:"got"`
	// More says that Got may be greater than Want without an error.
	More bool `json:"more,omitempty"`
}

// Func carries out the measures of a contender. It returns ErrNone for a measure that the contender
// does not have.
type Func func(ctx context.Context, r Request) (Sample, error)

// ErrNone means that a contender does not have a measure.
var ErrNone = errors.New("the contender does not have this measure")

// Serve reads one Request from in and writes the Sample to out. contenders are the contenders that
// this program contains.
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

// check refuses a Sample whose counts are wrong.
func (s Sample) check() error {
	for _, c := range s.Counts {
		if c.Got < c.Want || c.Got > c.Want && !c.More {
			return fmt.Errorf("the store has %d %s, want %d", c.Got, c.What, c.Want)
		}
	}
	return nil
}
