package registry

import (
	"os"
	"sync"

	"github.com/belaydev/belay/internal/host"
)

// maxHandles is how many handles of processes a Registry keeps open.
const maxHandles = 100

// owners finds out which owners have ended. It keeps a handle (pidfd) of each owner that was proven
// to live: asking the handles costs one system call for all of them, while the registry is locked.
// The handles are closed when their owners have left, or when the garbage collector collects the
// Registry.
type owners struct {
	mu      sync.Mutex
	handles map[Process]*os.File
}

// states returns the state of each process.
func (o *owners) states(all []Process, self Process) []host.Liveness {
	o.mu.Lock()
	defer o.mu.Unlock()
	states := make([]host.Liveness, len(all))
	var unknown []int // processes without a handle
	var asked []int
	var files []*os.File
	kept := make(map[Process]*os.File, len(all))
	for i, p := range all {
		f := o.handles[p]
		if f == nil {
			unknown = append(unknown, i)
			continue
		}
		kept[p] = f
		asked, files = append(asked, i), append(files, f)
	}
	for p, f := range o.handles {
		if kept[p] == nil {
			_ = f.Close()
		}
	}
	o.handles = kept
	ended, err := host.Ended(files)
	if err != nil {
		unknown = append(unknown, asked...)
	} else {
		for j, i := range asked {
			states[i] = host.Alive
			if ended[j] {
				states[i] = host.Dead
			}
		}
	}
	o.open(all, unknown, states, self)
	return states
}

// open finds out the states of the processes without a handle, and keeps handles of those that live.
func (o *owners) open(all []Process, unknown []int, states []host.Liveness, self Process) {
	processes := make([]host.Process, len(unknown))
	for j, i := range unknown {
		processes[j] = all[i].host()
	}
	for j, state := range host.States(processes, self.host()) {
		i := unknown[j]
		if states[i] = state; state != host.Alive || len(o.handles) >= maxHandles || o.handles[all[i]] != nil {
			continue
		}
		if f, err := processes[j].Handle(self.host()); err == nil {
			o.handles[all[i]] = f
		}
	}
}
