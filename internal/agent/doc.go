// Package agent runs supervised commands in isolated workspaces, as durable executions.
//
// The steps of a job are durable steps: the result of each is saved once, together with its changes
// in the workspace (a git bundle of its commits and a patch of the rest). When a worker crashes,
// the next one makes a new workspace at the same commit, restores the changes of the last finished
// step, and continues with the step that was interrupted. A finished step is never run again.
//
// An agent is one long step. Its changes are stored with the execution at an interval while it
// works, so that another machine can continue from them. On the same host the workspace of the dead
// run has newer changes, and these take precedence. The fencing token of the run that made them
// decides which changes are newer. Three names are enough for the stored artifacts: one set is that
// with which the run began, and of the other two one is complete while the other is being written.
//
// # Words
//
//   - A bench is the state of one run: its job, its workspace and the results so far.
//   - The saver stores the changes of an agent while it works. The brake freezes the agent meanwhile,
//     and also while the worker does not know whether it still owns the execution (the fence).
//   - A talk is the conversation of a run with its agent.
//   - The walls are the parts of the sandbox in which a command runs.
//
// Package process keeps the processes of a command together and ends them all;
// package workspace makes and removes the checkouts.
package agent
