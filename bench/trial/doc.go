// Package trial has what all contenders of a benchmark share: the form of a request and of its
// answer, the load, and the clocks.
//
// # A trial
//
// A trial is one measure of one contender in its own process, so that no contender pays for
// another's heap or goroutines. The process reads a Request from its standard input, works on its
// own empty store, writes a Sample to its standard output and ends. Any program that does this can
// be a contender: most contenders are in the program bench itself, and one is a program of another
// module.
//
// # The work
//
// All contenders get the same work: functions that do nothing, an input of about 300 bytes, the
// same numbers of callers, the same arrival times. After the work a trial counts in its store what
// was done. If the counts are wrong, the trial has an error instead of a figure.
package trial
