// Package belaytest is for tests of workflows: it runs workflows on a Backend in memory, makes
// their worker crash at a chosen step, and takes executions away from their worker.
//
//	k := belaytest.Open(func(w *worker.Worker) { worker.Register(w, "order", Order) })
//	defer k.Close()
//	k.CrashBefore(2) // crash after the second step was executed and before it is saved
//	h, err := workflow.Start[Receipt](ctx, k.Backend, "order", cart)
//	…
//	k.Restart()
//	receipt, err := h.Result(ctx)
//
// # Time
//
// Inside a [testing/synctest] bubble the clocks of the store, the worker and the workflow all show
// virtual time. A test of a workflow that sleeps for a month takes no time:
//
//	func TestReminder(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			k := belaytest.Open(func(w *worker.Worker) { worker.Register(w, "remind", Remind) })
//			defer k.Close()
//			h, err := workflow.Start[int](t.Context(), k.Backend, "remind", "ann")
//			…
//			k.Advance(30 * 24 * time.Hour)
//			…
//		})
//	}
//
// Outside a bubble time is real, and everything except Advance works too.
package belaytest
