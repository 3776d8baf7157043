// Package agent runs supervised commands in isolated workspaces, as durable
// executions.
//
// A job's steps are durable steps: the result of each is saved once, together
// with what it changed in the workspace (a git bundle of its commits and a
// patch of the rest). When the worker falls, the next one makes a new workspace
// at the same commit, restores what the last finished step left, and goes on
// with the step that was interrupted. A finished step is never run again.
//
// Package process keeps the processes of a command together and ends them all;
// package workspace makes and removes the checkouts.
package agent
