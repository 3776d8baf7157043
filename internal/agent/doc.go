// Package agent runs supervised commands in isolated workspaces, as durable executions.
//
// The steps of a job are durable steps: the result of each step is saved once, together with the
// changes in the workspace (a git bundle of the commits and a patch of the other changes). When a
// worker crashes, the next worker makes a new workspace at the same commit, restores the changes of
// the last finished step, and continues with the step that was interrupted. A finished step is
// never run again.
//
// An agent is one long step. While the agent works, its changes are stored with the execution at an
// interval, so that a run on another machine can start with these changes. On the same host the
// workspace of a dead run may have newer changes; the next run then starts with the newer changes.
// Of two runs, the run with the higher fencing token has the newer changes. The stored changes use
// at most three names of artifacts: one for the changes with which the run began, one for the
// changes that were stored last, and one for the changes that are being written.
//
// # Words
//
//   - A bench is the state of one run: its job, its workspace and the results so far.
//   - The saver stores the changes of an agent while the agent works. The brake freezes the agent
//     while the saver reads the workspace, and while the worker does not know whether it still owns
//     the execution (the fence).
//   - A talk is the conversation of a run with its agent.
//   - The walls are the parts of the sandbox in which a command runs.
//
// Package process keeps the processes of a command together and ends them all;
// package workspace makes and removes the checkouts.
package agent
