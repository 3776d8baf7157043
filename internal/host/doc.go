// Package host identifies processes of this machine so that their death can be proven, finds
// processes by a variable in their environment, and reads the clock that continues while the
// machine sleeps.
//
// # Identity
//
// A process number alone proves nothing, because the kernel reuses numbers. A [Process] therefore
// also has the boot, the PID namespace of the number, and the process's start time in clock ticks
// since boot. Two processes could only have the same number and the same start tick if the kernel
// used up all process numbers within a hundredth of a second. In that case the answer is wrongly
// Alive, and never wrongly Dead.
//
// # Proof
//
// [Process.State] returns Dead only with certainty: the calling process is in the same boot and the
// same PID namespace, and the number is free, or belongs to a process with another start time, or
// belongs to a zombie. A zombie has already closed its files, and so has lost its locks. Every
// other case is Unknown: another boot, another container, a hidden or missing /proc, an operating
// system other than Linux. Callers must treat only Dead as a proof; with Unknown they must wait
// until the lease expires.
package host
