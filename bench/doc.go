// Command bench compares Belay with its alternatives: River, DBOS Transact and Temporal, git, and
// the database alone. All of them work on the same private PostgreSQL, or the same disk, within the
// same minutes; only the ratios mean anything on another machine.
//
//	go run . [-quick] [-json FILE]
//
// # How it measures
//
// A trial is one measure of one contender, in its own process and on its own empty database
// (package trial); the server makes a checkpoint before it, so that no trial pays for another's
// writes. A round has each trial once, with the trials that are compared next to each other, and
// every second round runs backwards. The result is the median of the rounds.
//
// Belay runs with its defaults. Every other contender runs twice: with its defaults, and with the
// best known settings, which its package below runner lists with their source. Only work that was
// really done counts: after each trial the rows of the store are counted, and the results of jobs
// are checked.
//
// # Ten times the load
//
// The trial overload first finds the rate at which executions end while 2,000 or 10,000 are in the
// system, and then submits ten times as many for five times as long, whether they are accepted or
// not (trial.Crowd). During all that time ten workers with a TTL of three seconds own a hundred
// executions. Through HTTP, the producers have 64 connections, and the workers their own process.
// The executions that were accepted, ended and lost are counted in the store. River refuses no job,
// and has no sessions: the nearest counts are jobs that began twice or did not end, and changes of
// its leader.
//
//	go run . -only overload
//
// # Jobs of agents
//
// Fifty jobs of coding agents on one large repository are compared with git alone, and in Belay
// itself: ten at a time in the workspaces of the agent service, one at a time there, ten at a time
// in worktrees of one clone, and one at a time in one tree. Package jobs describes the jobs. They
// are measured in the first round only.
//
//	go run . -only jobs
//
// # What it prints
//
// The output has the figures, and for each aim of the project the measured value with a verdict:
// "aim" if the aim is reached, "floor" if only the least accepted value is, "BELOW FLOOR"
// otherwise; the program then ends with status 1. Without an aim the verdict is "compared".
package main
