// Package run performs one run (attempt) of an execution, from its claim to its settlement, the
// write that ends the run in the store. Authors of workflows use the run through package workflow,
// and package worker starts and stops it.
//
// # The fence
//
// Before each effect (a write to the store) a run checks the [Fence] of its session. The fence
// closes a fixed time after the last acknowledged heartbeat was sent. Its clock also counts the
// time during which the machine sleeps, so that a process that was stopped and continued finds the
// fence closed before it writes anything. While the fence is closed, effects wait. They continue
// when a heartbeat is acknowledged, and are refused when the lease is lost.
//
// # How a run ends
//
// The function returns, and the run is settled with the function's result. There are three
// exceptions, in which the result is ignored:
//
//   - the lease is lost: the run is not settled and cannot write anything more;
//   - every branch waited and the run has decided to suspend: it suspends;
//   - an operator paused or preempted the execution and the run then reached a safe point (the
//     beginning of a step or wait): the run gives the execution back.
//
// In the last two cases the current step or wait returns [ErrYield], and so does every later step
// or wait of that run. A workflow function should return this error; if it does not, the run ends
// nevertheless.
//
// # Waiting
//
// A branch waits only while it is blocked in a sleep, or while it waits for a signal, for a child or for another
// branch. The run suspends when every branch waits and no step is executing. If a wait may end soon, the run first
// lingers, which means that it keeps its slot in the worker: until the next timeout if this timeout is less than
// Session.Linger away, or for Session.Linger if a signal can end a wait and the worker has free slots. A branch stops
// counting as waiting at the moment at which it is woken, so that the run never decides to suspend because of an
// outdated state. A signal that arrives between the decision and the settlement is newer than the settlement's
// SignalSeen, and the store makes the execution ready to run at once.
//
// # Time
//
// Durations that the store measured (the age of a checkpoint, the rest of a timeout) count from the
// arrival of the claim's reply. The reply arrives after the store has measured them, so a sleep may
// end late, but never early.
package run
