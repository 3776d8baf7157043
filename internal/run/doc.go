// Package run carries out one run (attempt) of an execution, from its claim to its settlement.
// Package workflow gives authors access to the run, and package worker starts and stops it.
//
// # The fence
//
// Every effect of a run is checked by its session's [Fence] right before it happens. The fence
// closes a fixed time after the last acknowledged heartbeat was sent, by a clock that goes on while
// the machine sleeps, so that a process that was stopped and continued finds the fence closed
// before it writes anything. While the fence is closed, effects wait. They continue when a
// heartbeat gets through, and they are refused when the lease is lost.
//
// # How a run ends
//
// The function returns, and the run is settled with the function's result. There are three
// exceptions, in which the result is ignored:
//
//   - the lease is lost: the run is not settled and cannot write anything more;
//   - every branch waited and the run has decided to suspend: it suspends;
//   - the run reached a safe point (the beginning of a step or wait) after an operator asked for
//     the execution back (pause, preempt): the execution is given back.
//
// In the last two cases the step or wait that noticed the end returned [ErrYield], and so does
// every later step or wait of that run. An author should return the error; if the author ignores
// it, the run ends all the same.
//
// # Waiting
//
// A branch waits while it is blocked in a sleep, for a signal, for a child or for another branch,
// and at no other time. The run suspends when every branch waits and the first timeout of a wait is
// later than the run may linger. A branch that is woken does not count as waiting from that moment
// on, so that the decision to suspend never uses an outdated state. A signal that arrives between
// the decision and the settlement is newer than the settlement's SignalSeen, and the store makes
// the execution due at once.
//
// # Time
//
// Durations that the store measured (the age of a checkpoint, the rest of a timeout) count from the
// arrival of the claim's reply. That is later than the moment of the measurement, so a sleep may
// end late, but never early.
package run
