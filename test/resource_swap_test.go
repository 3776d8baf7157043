package test

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

const deviceID = belay.GateID("resource:device")

// deviceGroup is servers that share a device, a worker that uses it, and a worker that changes its mode.
type deviceGroup struct {
	*group
	device *device
	loader *started
	rounds int
}

func newDeviceGroup(t *testing.T, url string, servers int) *deviceGroup {
	t.Helper()
	g := &deviceGroup{group: newGroup(t, url, servers)}
	g.device = newDevice(t, g.path("device"))
	g.belay("resources", "set", "device", "--swap-workflow", loadWorkflow, "--min-residency", "1ms", "--max-wait", "1s",
		"--server", "http://"+g.members[0].listen).want(0)
	g.hire("asker")
	g.loader = g.hire(loaderName)
	return g
}

// hire starts a worker at the first server.
func (g *deviceGroup) hire(name string) *started {
	return g.start(g.role("device", nameEnv+"="+name, socketEnv+"="+g.path("device"),
		urlEnv+"=http://"+g.members[0].listen))
}

// fire kills the worker that changes the mode.
func (g *deviceGroup) fire() {
	g.t.Helper()
	g.loader.signal(syscall.SIGKILL)
	g.loader.wait(patience)
}

// deviceWork is an execution that needs another mode than the present one.
type deviceWork struct {
	id   belay.ExecutionID
	mode string
	err  chan error // the result of its submission
}

// submit submits an execution that needs another mode than the present one. It does not wait for the answer.
func (g *deviceGroup) submit() deviceWork {
	g.t.Helper()
	g.rounds++
	w := deviceWork{belay.ExecutionID(uuid.Must(uuid.NewV7())), []string{"A", "B"}[g.rounds%2], make(chan error, 1)}
	go func() {
		out, err := g.members[0].client.Submit(g.t.Context(), belay.Submission{
			ID: w.id, Workflow: askWorkflow, Input: []byte(strconv.Quote(w.mode)),
			Gates: belay.Gates{Requires: &belay.Requires{Resource: deviceID.Name(), Mode: w.mode}},
		})
		if err == nil {
			err = out[0].Err
		}
		w.err <- err
	}()
	return w
}

// swap returns the execution that changes the mode now.
func (g *deviceGroup) swap() belay.Execution {
	g.t.Helper()
	d, err := g.members[0].client.Gate(g.t.Context(), deviceID)
	if err != nil || d.Resource.Swapping == nil {
		g.t.Fatalf("the resource is %+v, %v", d.Resource, err)
	}
	x, err := g.members[0].client.Execution(g.t.Context(), d.Resource.Swapping.Execution)
	if err != nil {
		g.t.Fatal(err)
	}
	return x
}

// ready waits until the work in the mode is done, and checks that nothing is wedged: the resource has the mode
// and nothing uses it, the device has it too, and each change of the mode was one execution, which succeeded.
func (g *deviceGroup) ready(w deviceWork) {
	g.t.Helper()
	if err := <-w.err; err != nil {
		g.t.Fatal(err)
	}
	b, ctx := g.members[0].client, g.t.Context()
	var x belay.Execution
	until(g.t, "the work in the mode "+w.mode+" is done", func() bool {
		var err error
		x, err = b.Execution(ctx, w.id)
		return err == nil && x.State.Terminal()
	})
	if x.State != belay.Succeeded || x.Attempt != 1 {
		g.t.Errorf("the work in the mode %s is %s in attempt %d", w.mode, x.State, x.Attempt)
	}
	d, err := b.Gate(ctx, deviceID)
	if err != nil || d.Resource.Mode != w.mode || d.Resource.Swapping != nil || d.Held != 0 || d.Waiting != 0 {
		g.t.Errorf("afterwards the resource is %+v, %v", d.Resource, err)
	}
	has, _, broken := g.device.state()
	if has != w.mode || len(broken) > 0 {
		g.t.Fatalf("the device is in the mode %q, and the resource in %q: %q", has, w.mode, broken)
	}
	all, err := b.Executions(ctx, belay.Filter{Workflow: loadWorkflow, Limit: 1000})
	if err != nil || len(all.Executions) != g.rounds {
		g.t.Errorf("%d changes of the mode in %d rounds, %v", len(all.Executions), g.rounds, err)
	}
	for i := range all.Executions {
		if x := &all.Executions[i]; x.State != belay.Succeeded {
			g.t.Errorf("the change of the mode %s is %s: %+v", x.ID, x.State, x.Error)
		}
	}
}

// Rule: the processes of a swap are killed with SIGKILL at each step of the swap: its worker, its server or
// both. Then the resource gets the mode that is wanted, the work in that mode is done, and the device
// outside never serves two owners at once (guarantee G13).
func TestASwapKilledAtEachOfItsSteps(t *testing.T) {
	t.Parallel()
	for store, servers := range map[string]int{"sqlite": 1, "postgres": 2} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			url := ""
			if store == "postgres" {
				url = pgtest.Shared(t).Database(t)
			}
			g := newDeviceGroup(t, url, servers)
			r := dice(t)
			first := r.IntN(3)
			for i, at := range []struct {
				phase string
				saved int // the steps that are saved in this phase
			}{
				{phaseRequested, 0}, {phaseClaimed, 0}, {phaseUnloading, 0}, {phaseUnloaded, 0}, {phaseUnloadSaved, 1},
				{phaseLoading, 1}, {phaseLoaded, 1}, {phaseLoadSaved, 2},
			} {
				victims := []string{"worker", "server", "both"}
				switch {
				case at.phase == phaseRequested:
					victims = victims[1:2]
				case !*long:
					victims = victims[(first+i)%3:][:1]
				}
				for _, victim := range victims {
					g.killIn(at.phase, at.saved, victim)
				}
			}
			_, loads, _ := g.device.state()
			t.Logf("%d changes of the mode, which the device carried out %d times", g.rounds, loads)
		})
	}
}

// killIn kills processes when a swap is in a phase, and checks that the swap goes on.
func (g *deviceGroup) killIn(phase string, saved int, victim string) {
	g.t.Helper()
	w, resume := g.reach(phase)
	x, want := g.swap(), belay.Running
	if phase == phaseRequested {
		want = belay.Pending
	}
	if x.State != want || x.Checkpoints != saved {
		g.t.Fatalf("%s, the swap is %s with %d steps, want %d", phase, x.State, x.Checkpoints, saved)
	}
	g.t.Logf("when the swap %s is %s, kill the worker, the server or both: %s", x.ID, phase, victim)
	if victim != "server" {
		g.fire()
	}
	if victim != "worker" {
		g.members[0].kill()
	}
	resume()
	if victim != "server" {
		g.loader = g.hire(loaderName)
	}
	g.ready(w)
}

// reach submits work that needs another mode, and lets the swap go on to a phase. The function that it returns lets
// the swap continue.
func (g *deviceGroup) reach(phase string) (w deviceWork, resume func()) {
	g.t.Helper()
	if phase == phaseRequested {
		g.fire()
		w = g.submit()
		until(g.t, "a swap is requested", func() bool {
			d, err := g.members[0].client.Gate(g.t.Context(), deviceID)
			return err == nil && d.Resource.Swapping != nil
		})
		return w, func() { g.loader = g.hire(loaderName) }
	}
	tr := g.device.arm(phase)
	w = g.submit()
	g.wait("a swap is "+phase, tr.reached)
	return w, tr.free
}

// wait waits until a channel is closed.
func (g *deviceGroup) wait(what string, happened <-chan struct{}) {
	g.t.Helper()
	select {
	case <-happened:
	case <-time.After(patience):
		g.t.Fatalf("timed out before: %s", what)
	}
}
