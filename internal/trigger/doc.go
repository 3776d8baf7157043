// Package trigger computes the times of schedules. It has no side effects except that it reads time zones: those of the
// machine, and those that are compiled into the program for zones that the machine does not know.
package trigger
