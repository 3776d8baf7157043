// Package tasks shows the tasks of an execution of a document, and repairs such executions.
//
// # View
//
// A view is computed from three reads, whatever the number of tasks: the execution with its document, the state that
// the runner has saved, and the child executions of the tasks on the page, by their ids, which follow from the names of
// the tasks. The items of a foreach are counted from the saved state. A task that the runner has started, and has not
// saved yet, is found by its child.
//
// # Repair
//
// The engine knows nothing of documents. A repair is stored in the input of the execution, by a requeue that keeps
// results; so the history shows it with its actor and reason, the requeue and the repair are one commit, and a dead
// letter is resolved with it. The requeue names the generation that the repair has read, so that two repairs at the
// same time cannot both take effect. The runner applies a repair when a run of the new generation begins. Callers
// cannot store repairs in another way: the server refuses an input with a repair that the execution did not have.
package tasks
