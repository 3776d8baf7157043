// Package trial is what all contenders of a benchmark share: the form of a request and of its
// answer, the load, and the clocks.
//
// # A trial
//
// A trial is one measure of one contender in its own process, so that no contender pays for
// another's heap or goroutines. The process reads a Request from its standard input, works on its
// own empty store, writes a Sample to its standard output and ends. Any program that does that is a
// contender: most are in the program bench itself, one is a program of another module.
//
// # The work
//
// All contenders get the same work: functions that do nothing, an input of about 300 bytes, the
// same numbers of callers, the same arrival times. After the work a trial counts in its store what
// was done, and a Sample with wrong counts is an error, not a figure.
package trial
