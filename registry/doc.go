// Package registry coordinates the programs of one machine that share a resource in different
// modes, such as a GPU that can have one model loaded at a time. It needs no server: the state is
// files in a data directory, and file locks of the kernel order the changes.
//
// # Workflows and recipes
//
// A program that uses the resource registers as a workflow, with a name and the recipe (the mode of
// the resource) that it needs. A workflow has an owner, which is a process, and a TTL: the owner
// renews the entry before the TTL is over, and releases it at the end. An entry is dead if its
// owner has ended or its TTL is over; each operation first removes the dead entries.
//
// # Swaps
//
// A swap changes the mode of the resource. [Registry.Begin] writes a marker with the target recipe
// and the swap's holder, which is this process. From then on no workflow of another recipe can
// register. [Swap.Await] asks the preemptible workflows of other recipes to yield, and waits until
// no workflow of another recipe is left; then the swap is granted. [Swap.End] removes the marker.
//
// A marker counts only while its holder lives and has the lock .swap.lock. Each operation checks
// that first. If the lock is free, or the holder is proven to have ended, the operation removes the
// marker (an orphan) and writes the event orphan_marker_cleared, exactly once, to swap_log.jsonl.
// While a process has the lock without a marker, for example after the state file was removed, no
// workflow can register.
//
// # Promises
//
//   - While a granted swap to a recipe lasts, no workflow of another recipe is registered.
//   - The state file is always whole: either as before a change or as after it, also after a crash,
//     a power cut or a full disk. A change that a call has acknowledged survives them.
//   - A renewal or release of an entry that was removed, whose TTL is over, or that another process
//     registered under the same name, is refused with [belay.CodeLeaseLost].
//   - The death of any process leaves no lock behind: the kernel frees file locks.
//   - Belay creates and removes signal files only in the directory signals of the data directory,
//     follows no symbolic links there, and never writes into an existing file, whatever paths other
//     programs write into the state file.
//
// # Time
//
// A TTL counts on the clock CLOCK_BOOTTIME, which a change of the system time does not affect and
// which also counts while the machine sleeps. Entries of other programs may lack the reading of
// this clock; for these entries the system time decides.
//
// # Identity
//
// A process is known by its number, its start time, the boot and its PID namespace, so that a new
// process with the number of a dead one is not mistaken for it. If an entry names no boot or no
// namespace, or another boot or namespace, the death of its owner cannot be proven, since containers
// can have a namespace and even a boot id of their own; such an entry is dead only when its TTL is
// over. An entry of another boot is also dead if it was renewed last before this machine started,
// so after a restart of the machine old entries are dead, at the latest at the end of their TTLs.
//
// docs/registry.md describes the files for programs that take part without this package.
// The data directory must be on a local file system, not on NFS.
package registry
