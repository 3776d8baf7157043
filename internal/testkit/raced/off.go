//go:build !race

// Package raced tells tests whether they run under the race detector, which makes them several
// times slower and use more memory. A large test does less work under it, and make unit runs that
// test a second time without the race detector, in full.
package raced

// On reports that the race detector is on.
const On = false
