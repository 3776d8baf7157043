// Package host names processes of this machine so that their death can be
// proven, finds the ones that carry a mark in their environment, and reads the
// clock that goes on while the machine sleeps.
//
// # Identity
//
// A process number alone proves nothing: the kernel gives it out again. A
// [Process] therefore also carries the boot, the PID namespace in which the
// number means something, and the process's start time in clock ticks since
// boot. Two processes with one number and one start tick would have to follow
// each other within a hundredth of a second through the whole range of numbers;
// should that happen, the answer errs towards Alive.
//
// # Proof
//
// [Process.State] answers Dead only when that is certain: the asker lives in the
// same boot and the same PID namespace, and either the number is free, or it
// belongs to a process with another start time, or only a zombie is left of it.
// A zombie has already given up its files, and with them its locks. Everything
// else is Unknown: another boot, another container, a hidden or missing /proc,
// an operating system other than Linux. Whoever acts on a death acts on Dead
// alone; Unknown means wait for the lease to run out.
package host
