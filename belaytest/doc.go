// Package belaytest is for tests of workflows: it runs them on a Backend in memory, makes their
// worker crash at a chosen step, and takes executions from their owner.
//
//	k := belaytest.Open(func(w *worker.Worker) { worker.Register(w, "order", Order) })
//	defer k.Close()
//	k.CrashBefore(2) // crash when the second step was carried out and is not saved yet
//	h, err := workflow.Start[Receipt](ctx, k.Backend, "order", cart)
//	…
//	k.Restart()
//	receipt, err := h.Result(ctx)
//
// # Time
//
// Inside a [testing/synctest] bubble all time is virtual: the store's, the worker's and the
// workflow's. A test of a workflow that sleeps for a month takes no time:
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
// Outside of a bubble time is real; everything except Advance works there too.
package belaytest
