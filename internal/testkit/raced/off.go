//go:build !race

// Package raced reports to tests whether they run under the race detector, which makes them several
// times slower and makes them use more memory. Under the race detector, a large test does less
// work; make unit then runs that test a second time without the race detector, with all of its
// work.
package raced

// On reports that the race detector is on.
const On = false
