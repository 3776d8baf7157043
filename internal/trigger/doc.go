// Package trigger computes the times of schedules. It has no side effects except that it reads the time zones
// that are compiled into the program, so that all servers compute the same times.
package trigger
