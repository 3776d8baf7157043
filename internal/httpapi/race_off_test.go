//go:build !race

package httpapi_test

import "time"

const (
	raceDetector = false
	patience     = time.Second // for any answer
)
