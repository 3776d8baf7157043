// Package registry measures the registry of programs on one machine: processes that contend for
// it, each of which registers again and again. The contender flock does the least that such a
// registration can do: under a file lock, it replaces a file of the same size durably.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/registry"
)

// lead is the time in which all processes start before the measurement begins.
const lead = 2 * time.Second

// Run carries out a trial. If r.Role is set, this process is one of those that contend.
func Run(ctx context.Context, r trial.Request) (trial.Sample, error) {
	if r.Measure != trial.Register {
		return trial.Sample{}, trial.ErrNone
	}
	if r.Role != "" {
		return trial.Sample{}, contend(ctx, r)
	}
	data, err := fill(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.Dir, payload), data, 0o600)
	}
	if err != nil {
		return trial.Sample{}, err
	}
	r.At = time.Now().Add(lead)
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var contending sync.WaitGroup
	var processes []*trial.Child
	for i := range r.N {
		q := r
		q.Role = fmt.Sprintf("process-%d", i)
		c, err := trial.Spawn(q)
		if err != nil {
			failed = errors.Join(failed, err)
			break
		}
		processes = append(processes, c)
		contending.Go(func() {
			took, err := times(ctx, q, c)
			mu.Lock()
			defer mu.Unlock()
			all, failed = append(all, took...), errors.Join(failed, err)
		})
	}
	contending.Wait()
	s := trial.Sample{Rate: float64(len(all)) / r.For.Seconds(), Times: trial.TimesOf(all), Settings: fmt.Sprintf(
		"%d processes, one call after the other", r.N)}
	if failed == nil && r.Contender == "registry" {
		s.Counts, failed = count(r)
	}
	for _, c := range processes {
		failed = errors.Join(failed, c.Stop(time.Minute))
	}
	return s, failed
}

// times returns the durations of the calls of one process.
func times(ctx context.Context, r trial.Request, c *trial.Child) (took []time.Duration, err error) {
	if _, err := c.Await(ctx, "measured", lead+r.For+time.Minute); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(r.Dir, r.Role))
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(data, &took)
	return took, err
}

// count checks that the registry has an entry of each process. The processes have not ended yet.
func count(r trial.Request) ([]trial.Count, error) {
	data, err := os.ReadFile(filepath.Join(r.Dir, "workflows.json"))
	if err != nil {
		return nil, err
	}
	var state struct{ Workflows []json.RawMessage }
	err = json.Unmarshal(data, &state)
	return []trial.Count{{What: "workflows", Want: int64(r.N), Got: int64(len(state.Workflows))}}, err
}

// contend calls the contender until the time is over, and writes the durations of its calls within
// the time of the measurement into a file.
func contend(ctx context.Context, r trial.Request) error {
	call, err := caller(r)
	if err != nil {
		return err
	}
	var took []time.Duration
	for end := r.At.Add(r.For); ctx.Err() == nil; {
		began := time.Now()
		if !began.Before(end) {
			break
		}
		if err := call(ctx); err != nil {
			return err
		}
		if now := time.Now(); !began.Before(r.At) && now.Before(end) {
			took = append(took, now.Sub(began))
		}
	}
	data, err := json.Marshal(took)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.Dir, r.Role), data, 0o600)
	}
	if err != nil {
		return err
	}
	fmt.Println("measured")
	<-ctx.Done() // the entry stays until all have measured
	return nil
}

func caller(r trial.Request) (func(context.Context) error, error) {
	if r.Contender == "flock" {
		data, err := os.ReadFile(filepath.Join(r.Dir, payload))
		return func(context.Context) error { return bare(r.Dir, data) }, err
	}
	reg, err := registry.Open(r.Dir)
	return func(ctx context.Context) error {
		_, err := reg.Register(ctx, registry.Registration{Name: r.Role, Recipe: "model", TTL: time.Minute})
		return err
	}, err
}

// payload is the name of a file with as many bytes as the registry's state with an entry of each
// process.
const payload = "payload"

// fill returns a text of the size of the state file.
func fill(r trial.Request) ([]byte, error) {
	self, _ := registry.Self() // without an identity the entries are only a little shorter
	now := time.Now()
	all := make([]registry.Workflow, r.N)
	for i := range all {
		all[i] = registry.Workflow{Name: fmt.Sprintf("process-%d", i), Recipe: "model", Owner: self, StartedAt: now,
			LastRenewedAt: now, TTL: time.Minute}
	}
	return json.Marshal(all)
}

// bare replaces a file durably under a lock.
func bare(dir string, data []byte) error {
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "new"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "state")); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
