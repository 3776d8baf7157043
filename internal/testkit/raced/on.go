//go:build race

// Package raced reports to tests whether they run under the race detector; see off.go.
package raced

// On reports that the race detector is on.
const On = true
