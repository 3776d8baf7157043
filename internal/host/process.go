package host

import (
	"fmt"
	"syscall"
)

// Process is the identity of one process, good for comparing within one boot of
// one machine. Its JSON form is stable: it is written to disk beside workspaces
// and into sessions.
type Process struct {
	// Host is the machine's name, for people to read; it proves nothing.
	Host string `json:"host"`
	// BootID names this boot of the kernel.
	BootID string `json:"boot_id"`
	// PIDNamespace is the inode of the namespace in which PID counts.
	PIDNamespace uint64 `json:"pid_namespace"`
	PID          int    `json:"pid"`
	// Start is when the process started, in clock ticks since boot.
	Start uint64 `json:"start"`
}

// String gives what a person needs to find the process.
func (p Process) String() string {
	if p.PID == 0 {
		return "unknown process"
	}
	return fmt.Sprintf("process %d on %s", p.PID, p.Host)
}

// State tells whether p is alive, as seen by self, the identity of the process
// that asks ([Self]). It never answers Dead without proof.
func (p Process) State(self Process) Liveness {
	if !p.comparable(self) {
		return Unknown
	}
	return probe(p.PID, p.Start)
}

// Signal sends sig to p and to nothing else: the identity is checked again right
// before, through a handle that a recycled number cannot deceive where the kernel
// offers one. It returns [os.ErrProcessDone] if p is gone, and an error wrapping
// [ErrForeign] if p cannot be told apart from here.
func (p Process) Signal(self Process, sig syscall.Signal) error {
	if !p.comparable(self) {
		return fmt.Errorf("signal %s: %w", p, ErrForeign)
	}
	return signal(p.PID, p.Start, sig)
}

// comparable reports whether p and self count processes the same way, so that
// the number and start time of p mean something to self.
func (p Process) comparable(self Process) bool {
	return p.PID > 0 && p.Start > 0 &&
		p.BootID != "" && p.BootID == self.BootID &&
		p.PIDNamespace != 0 && p.PIDNamespace == self.PIDNamespace
}

// Liveness is what can be said about a process from where one stands.
type Liveness int

const (
	// Unknown means that nothing is proven: act as if the process were alive.
	Unknown Liveness = iota
	// Alive means that this very process exists.
	Alive
	// Dead means that this very process is proven to be gone.
	Dead
)

func (l Liveness) String() string {
	switch l {
	case Alive:
		return "alive"
	case Dead:
		return "dead"
	case Unknown:
	}
	return "unknown"
}

// Status is one line of the process table, as [Processes] reads it.
type Status struct {
	PID    int
	Parent int
	// State is the kernel's letter: R, S, D, T (stopped), t (traced), Z (zombie), X.
	State byte
	// Threads counts the threads that are left; of a true zombie at most one.
	Threads int
	Start   uint64
}

// Ended reports whether nothing of the process runs any more: all that is left is
// an entry that waits for its parent. A zombie leader whose other threads still
// run has not ended.
func (s Status) Ended() bool {
	return (s.State == 'Z' || s.State == 'X' || s.State == 'x') && s.Threads <= 1
}

// Signal sends sig to the process that s describes, or returns
// [os.ErrProcessDone] if that process is gone.
func (s Status) Signal(sig syscall.Signal) error {
	return signal(s.PID, s.Start, sig)
}

// Descendants returns the processes of table that descend from any of roots, the
// roots left out, parents before their children.
func Descendants(table []Status, roots ...int) []Status {
	children := make(map[int][]Status, len(table))
	for _, s := range table {
		children[s.Parent] = append(children[s.Parent], s)
	}
	seen := make(map[int]bool, len(roots))
	for _, pid := range roots {
		seen[pid] = true
	}
	var found []Status
	for queue := append([]int(nil), roots...); len(queue) > 0; queue = queue[1:] {
		for _, s := range children[queue[0]] {
			if !seen[s.PID] {
				seen[s.PID] = true
				found = append(found, s)
				queue = append(queue, s.PID)
			}
		}
	}
	return found
}

// Found is a process that carries a mark, and what the mark says.
type Found struct {
	Process
	Value string
}
