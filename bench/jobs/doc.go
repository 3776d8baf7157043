// Package jobs is the load of coding agents: many jobs at once on one large repository. Each job
// waits for its model, edits files, commits and runs git. The trials compare where the jobs work:
// in Belay's workspaces, in worktrees of one clone, or in one tree, one after the other.
//
// # The work
//
// The repository is Go's own source tree; it is the remote of all jobs. It changes while the jobs
// work: a neighbour pushes a commit every second. All contenders run the same shell script for a
// job. The script makes a branch, edits files that all jobs edit and one file of its own, and makes
// two commits, with a stash, a fetch and a rebase between them. It also makes and deletes another
// branch, and runs gc --auto. Between its commands it waits, as an agent waits for its model.
//
// If a git command fails, the script reports the failure and repeats the command, as agents do. The
// reports are counted.
//
// # The checks
//
// Each job leaves a branch. All branches are fetched into a clone of the repository. A job is right
// if its branch consists of its own two commits on top of the repository's commits and changes only
// its own files and lines, and if the job has read exactly what it wrote. Every other job is wrong.
// A job with a line of another job is counted as cross-talk.
//
// # Disk
//
// The disk space below the trial's directory is counted in blocks, each file once even if it has
// several names. It is measured from time to time while jobs run. The space that is taken before
// the first job, by the clone from which the jobs' work trees are made, is subtracted.
package jobs
