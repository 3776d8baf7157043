//go:build race

package httpapi_test

import "time"

// The race detector keeps memory of its own and makes everything ten times slower.
const (
	raceDetector = true
	patience     = 10 * time.Second
)
