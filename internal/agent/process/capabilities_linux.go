package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// contained are the capabilities that root keeps in a run with walls (in a sandbox), because
// programs of root need these capabilities for their own files and processes. A program cannot use
// any of them to remove the walls or to change the kernel.
const contained = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID |
	1<<unix.CAP_KILL |
	1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_BIND_SERVICE |
	1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_SETFCAP

// dropCapabilities removes from the calling thread the capabilities that the command must not have;
// the thread starts the command later. The thread has set no_new_privs, so the command cannot get
// these capabilities back.
func dropCapabilities(o *order) error {
	keep := uint64(contained)
	switch {
	case o.Isolation == UserNamespace:
		keep = 0
	case !o.walled():
		keep = ^uint64(0)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	for i := range sets {
		mask := uint32(keep >> (32 * i))
		sets[i].Inheritable = 0
		sets[i].Permitted &= mask
		sets[i].Effective &= mask
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	return nil
}
