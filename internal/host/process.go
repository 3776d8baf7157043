package host

import (
	"fmt"
	"syscall"
)

// Process is the identity of a process, for comparisons within one boot of one machine. Its JSON
// form must stay stable, because it is stored beside workspaces and in sessions.
type Process struct {
	// Host is the machine's name, for people to read; comparisons ignore it.
	Host string `json:"host"`
	// BootID identifies this boot of the kernel.
	BootID string `json:"boot_id"`
	// PIDNamespace is the inode of the namespace to which PID belongs.
	PIDNamespace uint64 `json:"pid_namespace"`
	PID          int    `json:"pid"`
	// Start is when the process started, in clock ticks since boot.
	Start uint64 `json:"start"`
}

// String names the process for people, by its number and its host.
func (p Process) String() string {
	if p.PID == 0 {
		return "unknown process"
	}
	return fmt.Sprintf("process %d on %s", p.PID, p.Host)
}

// State reports whether p is alive. self is the identity of the calling process ([Self]). State
// returns Dead only with proof.
func (p Process) State(self Process) Liveness {
	if !p.comparable(self) || readable() != nil {
		return Unknown
	}
	return probe(p.PID, p.Start)
}

// States reports for each process of a list what [Process.State] reports. Reading many processes at
// once costs less.
func States(all []Process, self Process) []Liveness {
	states := make([]Liveness, len(all))
	if readable() != nil {
		return states
	}
	for i, p := range all {
		if p.comparable(self) {
			states[i] = probe(p.PID, p.Start)
		}
	}
	return states
}

// Signal sends sig to p and to no other process. It checks the identity of p immediately before it
// sends sig, and uses a process handle if the kernel offers this, so that sig cannot reach a new
// process with the same number. It returns [os.ErrProcessDone] if p has ended, and an error
// wrapping [ErrForeign] if p belongs to another boot or PID namespace.
func (p Process) Signal(self Process, sig syscall.Signal) error {
	if !p.comparable(self) {
		return fmt.Errorf("signal %s: %w", p, ErrForeign)
	}
	return signal(p.PID, p.Start, sig)
}

// comparable reports whether p and self have the same boot and PID namespace, so that the number
// and start time of p mean the same for self.
func (p Process) comparable(self Process) bool {
	return p.PID > 0 && p.Start > 0 &&
		p.BootID != "" && p.BootID == self.BootID &&
		p.PIDNamespace != 0 && p.PIDNamespace == self.PIDNamespace
}

// Liveness is what the calling process can prove about another process.
type Liveness int

const (
	// Unknown means that nothing is proven. Callers must treat the process as alive.
	Unknown Liveness = iota
	// Alive means that the process itself exists, and not another process with its number.
	Alive
	// Dead means that the process is proven to have ended.
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
	// Threads is the kernel's count of the threads that still exist. For a zombie whose threads
	// have all ended, this count may still be 1.
	Threads int
	Start   uint64
}

// Ended reports whether no thread of the process runs any more: only an entry in the process table
// remains until the parent reads it. A zombie leader whose other threads still run has not ended.
func (s Status) Ended() bool {
	return (s.State == 'Z' || s.State == 'X' || s.State == 'x') && s.Threads <= 1
}

// Signal sends sig to the process that s describes, or returns
// [os.ErrProcessDone] if that process is gone.
func (s Status) Signal(sig syscall.Signal) error {
	return signal(s.PID, s.Start, sig)
}

// Descendants returns the processes of table that descend from any of the roots, without the roots,
// and parents before their children.
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

// Found is a process that has a variable in its environment, with the variable's value.
type Found struct {
	Process
	Value string
}
