// Package sdktest is the one suite of what packages workflow and worker promise
// on a Backend. A Backend's test is a few lines:
//
//	func TestSDK(t *testing.T) {
//		sdktest.Run(t, func(t *testing.T) belay.Backend { … })
//	}
//
// Each case runs in a testing/synctest bubble: an hour of sleep takes no time,
// and "nothing more happens" can be waited for. The Backend is opened inside of
// the bubble and closed in it by the suite; one that speaks over a network must
// do so over in-process connections.
//
// Between each worker and the Backend lies a wire that a case can cut, hold and
// bend: calls that never arrive, replies that never come back.
package sdktest
