// Package belaytest tests workflows: it runs them on a Backend in memory, lets
// their worker die at a chosen step, and takes their executions away.
//
//	k := belaytest.Open(func(w *worker.Worker) { worker.Register(w, "order", Order) })
//	defer k.Close()
//	k.CrashBefore(2) // dies with the second step carried out and not saved
//	h, err := workflow.Start[Receipt](ctx, k.Backend, "order", cart)
//	…
//	k.Restart()
//	receipt, err := h.Result(ctx)
//
// # Time
//
// Inside of a [testing/synctest] bubble all time is virtual: the store's, the
// worker's and the workflow's. A test of a workflow that sleeps for a month takes
// no time:
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
// Outside of a bubble time is real, and everything but Advance works too.
package belaytest
