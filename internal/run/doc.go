// Package run is one attempt at an execution, from its claim to its
// settlement. Package workflow shows it to authors, package worker drives it.
//
// # The fence
//
// Every effect of a run passes its session's [Fence] right before it happens.
// The fence counts from the moment the last acknowledged heartbeat was sent, on
// a clock that goes on while the machine sleeps, so a process that was stopped
// and continued finds it closed before it writes anything. Behind a closed
// fence effects wait: either a heartbeat gets through and they go on, or the
// lease turns out to be lost and they are refused.
//
// # How a run ends
//
// The function returns, and what it returned is settled, with three exceptions
// that hold whatever it returned:
//
//   - the lease is lost: nothing is settled, nothing more can be written;
//   - every branch waited and the run was told to suspend: it suspends;
//   - the run reached a safe point after somebody asked for the execution back
//     (pause, preempt): it is given back.
//
// In the last two cases the calls that noticed it answered with [ErrYield], and
// so does every later step or wait of that run: an author who swallows the
// error cannot make the run go on, and authors who just return it are right.
//
// # Waiting
//
// A branch waits while it is blocked in a sleep, for a signal, for a child or
// for another branch, and at no other time. When every branch waits and the
// first end of a wait by time is farther away than the run may linger, the run
// suspends. Whoever is woken counts as not waiting from that moment on, so a
// suspend is never decided on what was true a moment ago. A signal that arrives
// between the decision and the settlement is newer than the settlement's
// SignalSeen, and the store makes the execution due at once.
//
// # Time
//
// Durations of the store (the age of a checkpoint, what remains of a timeout)
// count from the arrival of the claim's reply, which is later than the moment
// the store measured them at: a sleep may end late, never early.
package run
