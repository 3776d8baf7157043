// Package agent runs supervised commands in isolated workspaces, as durable
// executions.
//
// A job's steps are durable steps: the result of each is saved once, together
// with what it changed in the workspace (a git bundle of its commits and a
// patch of the rest). When the worker falls, the next one makes a new workspace
// at the same commit, restores what the last finished step left, and goes on
// with the step that was interrupted. A finished step is never run again.
//
// An agent is one long step. What it has changed is kept with the execution every so
// often while it works, so that another machine goes on from there; on the same host
// what its dead workspace held is newer and comes first. The token of the run whose
// work it is decides between the two. Three names are enough for the artifacts: what
// the run began with stays, and of the other two one is whole while the other is
// written.
//
// Package process keeps the processes of a command together and ends them all;
// package workspace makes and removes the checkouts.
package agent
