package registry

import (
	"fmt"
	"os"
	"strings"

	"github.com/belaydev/belay/internal/host"
)

// tick is the length of the kernel's clock tick in nanoseconds: USER_HZ is 100 on every
// architecture that Go supports.
const tick = 10_000_000

// Process is the identity of a process.
type Process struct {
	// PID is the number of the process in its PID namespace.
	PID int
	// StartNS is when the process started, in nanoseconds since the boot: the field starttime of
	// /proc/PID/stat, multiplied by the length of a clock tick.
	StartNS uint64
	// BootID identifies the boot of the machine. "" means that it is not known.
	BootID string
	// PIDNamespace is the inode of the PID namespace. 0 means that it is not known.
	PIDNamespace uint64
}

// Identify returns the identity of a running process. The error wraps [os.ErrProcessDone] if there
// is no process with this number.
func Identify(pid int) (Process, error) {
	p, err := host.Identify(pid)
	return processOf(p), err
}

// Self returns the identity of this process.
func Self() (Process, error) { return Identify(os.Getpid()) }

func processOf(p host.Process) Process {
	return Process{PID: p.PID, StartNS: p.Start * tick, BootID: p.BootID, PIDNamespace: p.PIDNamespace}
}

func (p Process) host() host.Process {
	return host.Process{BootID: p.BootID, PIDNamespace: p.PIDNamespace, PID: p.PID, Start: p.StartNS / tick}
}

func (p Process) String() string { return fmt.Sprintf("process %d", p.PID) }

// same reports whether p and q are the same process, as far as both are known. Programs that write
// no boot and no namespace are known by number and start time only.
func (p Process) same(q Process) bool {
	return p.PID == q.PID && p.StartNS/tick == q.StartNS/tick &&
		(p.BootID == "" || q.BootID == "" || p.BootID == q.BootID) &&
		(p.PIDNamespace == 0 || q.PIDNamespace == 0 || p.PIDNamespace == q.PIDNamespace)
}

// ended reports whether it is proven that p has ended: p has the same boot id and PID namespace as
// self, which is this process, and its number is free or belongs to another process.
func (p Process) ended(self Process) bool { return p.host().State(self.host()) == host.Dead }

// foreignBoot reports whether p has another boot id than self: p ran before the machine restarted,
// or runs now in a container that has a boot id of its own.
func (p Process) foreignBoot(self Process) bool {
	return p.BootID != "" && self.BootID != "" && machineBoot(p.BootID) != machineBoot(self.BootID)
}

// inTimeNamespace reports whether the clock of p's boot has an offset.
func (p Process) inTimeNamespace() bool { return p.BootID != machineBoot(p.BootID) }

// machineBoot returns the part of a boot id that the kernel gave. The part after the sign + belongs
// to a time namespace; see package host.
func machineBoot(id string) string {
	id, _, _ = strings.Cut(id, "+")
	return id
}

// alive reports whether it is proven that p has not ended.
func (p Process) alive(self Process) bool { return p.host().State(self.host()) == host.Alive }
