// Package sdktest is the suite of behavioural tests of packages workflow and worker, for any
// Backend. The test of a Backend is a few lines:
//
//	func TestSDK(t *testing.T) {
//		sdktest.Run(t, func(t *testing.T) belay.Backend { … })
//	}
//
// Each case runs in a testing/synctest bubble: an hour of sleep takes no time, and a case can wait
// until all goroutines are idle. The suite opens the Backend inside the bubble and closes it there.
// A Backend that uses a network must use in-process connections.
//
// Each worker calls the Backend through a wire: a Backend on which a case can make calls fail
// before they arrive, delay them, or lose their replies. A worker's fence is the time after which
// the worker starts no step, because its lease may have expired; the cases say that the fence
// closes at that time.
package sdktest
