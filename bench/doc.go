// Command bench compares Belay with its alternatives: River, DBOS Transact and Temporal, git, and
// the database alone. All of them work on the same private PostgreSQL, or the same disk, within the
// same minutes. On another machine only the ratios are comparable.
//
//	go run . [-quick] [-json FILE]
//
// # How it measures
//
// A trial is one measure of one contender, in its own process and on its own empty database
// (package trial). The database server makes a checkpoint before each trial, so that no trial pays
// for the writes of another. A round has each trial once, with the trials that are compared next to
// each other, and every second round runs backwards. The result is the median of the rounds.
//
// Belay runs with its defaults. Every other contender runs twice: with its defaults, and with the
// best known settings, which its package in the directory runner lists with their source. Only work
// that was really done counts: after each trial the rows of the store are counted, and the results
// of jobs are checked.
//
// # Ten times the load
//
// The trial overload first finds the rate at which executions end while 2,000 or 10,000 are in the
// system. Then, for five times as long, it submits at ten times that rate, whether the executions
// are accepted or not (trial.Crowd). During the whole trial ten workers with a TTL of three seconds
// own a hundred executions. Through HTTP, the producers have 64 connections, and the workers run in
// a process of their own. Afterwards the trial counts in the store how many executions were
// accepted and ended and how many sessions and leases were lost. River refuses no job and has no
// sessions. For River the trial counts instead the jobs that began twice or did not end, and
// changes of its leader.
//
//	go run . -only overload
//
// # Jobs of agents
//
// Fifty jobs of coding agents on one large repository are run in four ways: by Belay's agent
// service in its workspaces, ten at a time and one at a time, and with git alone, ten at a time in
// worktrees of one clone and one at a time in one tree. Package jobs describes the jobs. They are
// measured only in the first round.
//
//	go run . -only jobs
//
// # Gates
//
// The trial gates runs executions that all name one limit, so that at most 5 or at most 100 of them
// run at a time: on one server, on three servers of one database, and on SQLite. The trial parked
// measures executions without a limit, alternately in two stores; in one of these stores, 10,000
// further executions wait at a full limit. The trial's results kept and kept_cpu are the throughput
// with waiting executions as a part of the throughput without them, by elapsed time and by
// processor time.
//
//	go run . -only gates,parked
//
// # Documents
//
// The trial documents runs a chain of ten tasks that do nothing and a fan-out of a hundred, as documents and as
// functions in Go that start the same children, on both stores, in process and through HTTP. It prints the time from
// the submission until the caller knows the end, and in process the number of commits.
//
//	go run . -only documents
//
// # The registry
//
// The trial register lets 20 processes register again and again in the registry of one machine. The
// contender flock does the least that a registration needs: under a file lock, it replaces a file of
// the same size durably.
//
//	go run . -only register
//
// # Pages of the web UI
//
// The trial pages fills a store with 1,000,000 ended executions (-n), a tenth as many pending ones, dead
// letters, gates, documents and schedules. The engine runs and accepts a hundred templates, and the rows of
// their copies are written directly. Then 50 workers connect to a server, and each page of the web UI is
// requested 50 times: first one request at a time, and then from four readers, while 100 executions a second
// are submitted and run. Each page must take at most 200 ms at p95 when it is requested alone. If
// BELAY_BENCH_PAGES names a file, the trial writes the addresses of the pages to it, and keeps the server until
// the file is removed.
//
//	go run . -only pages
//
// # Two revisions
//
// With -before, the bench program of another revision repeats each trial in which Belay runs in
// this process, right after the trial of this revision. The report has the ratios of the two
// revisions, round by round.
//
//	go run . -before /tmp/program-of-the-other-revision -only drain,steps
//
// # What it prints
//
// The report has the measured figures. For each aim of the project it also has the measured value
// with a verdict: "aim" if the aim is reached, "floor" if only the least accepted value is reached,
// and otherwise "BELOW FLOOR"; the program then exits with status 1. If a claim has no aim, the
// verdict is "compared".
package main
