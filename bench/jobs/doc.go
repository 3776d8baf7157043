// Package jobs is the load of coding agents: many at once on one large repository,
// each of which thinks, edits, commits and runs git. What is compared is where they
// work: in Belay's workspaces, in worktrees of one clone, or in one tree, one after
// the other.
//
// # The work
//
// The repository is Go's own source tree, the remote of all jobs. It moves: while
// they work, somebody else's commits land on it every second. Each job is the same
// shell script, whoever runs it: a branch, edits in files that all of them edit and
// in one of its own, two commits, and between them a stash, a fetch and a rebase; a
// branch that comes and goes, and gc --auto. Between these it waits, as an agent
// waits for its model.
//
// A git that fails is told and tried again, as agents do. What was told is counted.
//
// # What is checked
//
// Each job leaves a branch. They are all brought into a clone of the repository, and
// there a job is right if its branch is its two commits on top of the repository's,
// has changed its own files and lines, and if the job has read of itself what it has
// written. Wrong is every other; cross-talk is a job that holds a line of another's.
//
// # Disk
//
// What is below the trial's directory counts in blocks, each file once, however many
// names it has. It is looked at now and then while jobs run; what was there when the
// first began is taken off: the clone or base, which is made before.
package jobs
