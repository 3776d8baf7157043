//go:build race

package sdktest

// raced says that the race detector watches.
const raced = true
