//go:build !race

// Package raced tells tests whether the race detector watches. It makes them several times slower
// and keeps memory of its
// own: a test that carries much carries less under it, and make unit runs it a second time without it, in full.
package raced

// On says that the race detector watches.
const On = false
