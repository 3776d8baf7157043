// Package test holds Belay to its promises from outside: it builds the real
// binary, runs it on real repositories with real processes, kills it, stops it,
// feeds it what nobody should, and then reads what it told and what its store
// holds.
//
//	go test ./test                 a sample of the crash points, by a new seed
//	go test ./test -args -long     all of them
//	go test ./test -args -seed 7   what seed 7 decided
//
// Every test keeps all its state in a directory of its own, speaks to nobody
// outside of the machine, and ends only processes that it started.
package test
