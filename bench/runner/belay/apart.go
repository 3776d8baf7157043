package belay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
)

// report is a line that the process of the workers prints: how many of its runs have ended and
// which executions have begun since the last line. The final line has the times of the heartbeats.
type report struct {
	Ended int          `json:"ended"`
	Begun []int        `json:"begun"`
	Beats *trial.Times `json:"beats"`
}

// reporter collects the contents of the next report.
type reporter struct {
	mu  sync.Mutex
	now report
}

func (r *reporter) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Ended++
}

func (r *reporter) begin(i int) {
	if i%trial.Sampled != 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Begun = append(r.now.Begun, i)
}

func (r *reporter) say() error {
	r.mu.Lock()
	said := r.now
	r.now = report{}
	r.mu.Unlock()
	return said.print()
}

func (r report) print() error {
	text, err := json.Marshal(r)
	fmt.Printf("did %s\n", text)
	return err
}

// workApart runs all executions of a server, in a process of its own, until the standard input of
// that process ends.
func workApart(ctx context.Context, r trial.Request) error {
	connect := func(ctx context.Context) (belay.Backend, func() error, error) {
		b, err := dial(ctx, r.URL)
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	}
	h, err := holdAll(ctx, connect)
	if err != nil {
		return err
	}
	b, end, err := connect(ctx)
	if err != nil {
		return err
	}
	var did reporter
	c := startWorker(ctx, &ending{b, did.end}, did.begin, func() {})
	fmt.Println("holds")
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	for said := time.NewTicker(reported); ; {
		select {
		case <-said.C:
			if err := did.say(); err != nil {
				return err
			}
			continue
		case <-over:
		}
		break
	}
	beats, err := h.end()
	if err := errors.Join(err, c.stopWorking(), end(), did.say()); err != nil {
		return err
	}
	return report{Beats: beats}.print()
}

// reported is the interval at which the process of the workers prints a report.
const reported = 10 * time.Millisecond

// apart starts another process that runs the executions, so that running them does not slow down
// this process, which submits. The returned function ends the other process.
func (o *crowded) apart(ctx context.Context, r trial.Request) (end func() (*trial.Times, error), _ error) {
	r.Role, r.URL = "crew", o.server.url
	c, err := trial.Spawn(r)
	if err != nil {
		return nil, err
	}
	if _, err := c.Await(ctx, "holds", patience); err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	var beats *trial.Times
	over := make(chan error, 1)
	go func() {
		for beats == nil {
			text, err := c.Await(ctx, "did ", patience)
			var did report
			if err == nil {
				err = json.NewDecoder(strings.NewReader(text)).Decode(&did)
			}
			if err != nil {
				over <- err
				return
			}
			o.crowd.End(did.Ended)
			for _, i := range did.Begun {
				o.crowd.Begin(i)
			}
			beats = did.Beats
		}
		over <- nil
	}()
	return func() (*trial.Times, error) {
		err := c.Finish()
		if err == nil {
			err = <-over
		}
		return beats, errors.Join(err, c.Stop(patience))
	}, nil
}

// beside starts workers in this process, which run the executions. The returned function stops the
// workers.
func (o *crowded) beside(ctx context.Context) (end func() (*trial.Times, error), _ error) {
	h, err := holdAll(ctx, o.connect)
	if err != nil {
		return nil, err
	}
	c := startWorker(ctx, &ending{o.works, func() { o.crowd.End(1) }}, o.crowd.Begin, func() {})
	return func() (*trial.Times, error) {
		beats, err := h.end()
		return beats, errors.Join(err, c.stopWorking())
	}, nil
}
