// Command bench measures Belay beside what people would take in its place: River,
// DBOS Transact and Temporal, beside git, and beside what the database does alone. All
// of them work on the same private PostgreSQL, or the same disk, in the same minutes;
// only the ratios mean anything on another machine.
//
//	go run . [-quick] [-json FILE]
//
// # How it measures
//
// A trial is one measure of one contender, in a process of its own and on an empty
// database of its own (package trial); a checkpoint of the server lies before it,
// so that no trial pays for another's writes. A round has each trial once, with
// those that are compared next to each other, and every other round goes backwards.
// What counts is the median of the rounds.
//
// Belay runs with its defaults. Every other contender runs twice: with its
// defaults, and in the best settings that are known, which stand with their
// source in its package below runner. Nothing is measured that was not done: the
// rows of each store are counted after each trial, and jobs' work is read.
//
// # Ten times the load
//
// The trial overload first finds the rate at which executions end while 2,000 or 10,000
// are on their way, and then offers ten times as many for five times as long, whatever
// becomes of them (trial.Crowd). All the while ten workers with a TTL of three seconds
// own a hundred executions. Through HTTP, the producers have 64 connections, and workers a
// process of their own. What is accepted, what ended and what was lost is counted in
// the store. River refuses nothing, and has no sessions: what comes nearest are jobs
// that began twice or did not end, and a change of its leader.
//
//	go run . -only overload
//
// # Jobs of agents
//
// Fifty jobs of coding agents on one large repository have no contender but git, and
// Belay itself: ten at a time in the workspaces of the agent service, one at a time
// there, ten at a time in worktrees of one clone, and one at a time in one tree. What
// they do is in package jobs. They are measured in the first round only.
//
//	go run . -only jobs
//
// # What it says
//
// The figures, and for each aim of the project the measured value with a verdict:
// "aim" if it is reached, "floor" if only the least that is accepted is, "BELOW
// FLOOR" otherwise, in which case the program ends with status 1. Where there is no
// aim the verdict is "compared".
package main
