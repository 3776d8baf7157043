// Package test checks Belay's guarantees from outside: the tests build the real binary, run it on
// real repositories with real processes, kill it, stop it, give it hostile input, and then compare
// its output with the content of its store.
//
//	go test ./test                 a sample of the crash points, chosen with a new seed
//	go test ./test -args -long     all of them
//	go test ./test -args -seed 7   repeat the random choices of seed 7
//
// Every test keeps all its state in its own directory, which the code calls the place, connects to
// no other machine, and ends only processes that it started. A ledger is a file in which the test's
// own commands note their steps, outside of Belay. G1, G2 and so on are the guarantees of
// docs/guarantees.md.
package test
