//go:build race

// Package raced tells tests whether the race detector watches; see off.go.
package raced

// On says that the race detector watches.
const On = true
