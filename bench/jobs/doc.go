// Package jobs is the load of coding agents: many jobs at once on one large repository, each of
// which waits for its model, edits, commits and runs git. The trials compare where the jobs work:
// in Belay's workspaces, in worktrees of one clone, or in one tree, one after the other.
//
// # The work
//
// The repository is Go's own source tree, the remote of all jobs. It moves: while the jobs work, a
// neighbour pushes a commit every second. All contenders run the same shell script for a job: it
// makes a branch, edits files that all jobs edit and one file of its own, and makes two commits;
// between them it runs a stash, a fetch and a rebase. It also makes and deletes another branch, and
// runs gc --auto. In between it waits, as an agent waits for its model.
//
// A git command that fails is reported and repeated, as agents do. The reports are counted.
//
// # The checks
//
// Each job leaves a branch. All branches are fetched into a clone of the repository. A job is right
// if its branch is its own two commits on top of the repository's and changes only its own files
// and lines, and if the job has read exactly what it wrote. Every other job is wrong; a job with a
// line of another job is cross-talk.
//
// # Disk
//
// The disk space below the trial's directory is counted in blocks, each file once even if it has
// several names. It is measured from time to time while jobs run; the space before the first job,
// which is that of the clone or base, is subtracted.
package jobs
