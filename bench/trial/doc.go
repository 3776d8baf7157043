// Package trial is what all contenders of a benchmark share: how a trial is asked
// for and answered, the load that is put on them, and the clocks.
//
// # A trial
//
// A trial is one measure of one contender in a process of its own, so that nobody
// pays for another's heap or goroutines. The process reads a Request from its
// standard input, works on an empty store that is its own, writes a Sample to its
// standard output and ends. A contender is whatever program does that: most are in
// the program bench itself, one is a program of another module.
//
// # The work
//
// Every contender gets the same: functions that do nothing, an input of about 300
// bytes, the same numbers of callers, the same arrival times. What a trial claims
// to have done it counts afterwards in its store, and a Sample whose counts are
// wrong is an error, not a figure.
package trial
