// Package runner executes documents: it has the workflow function of the built-in workflow [Workflow].
//
// # A task is a child
//
// Each task of a document is a child execution, and so is each item of a foreach. The child is named by the id of the
// task, and its number for an item: build[7]. The engine and the workers treat it like any other execution: it has its
// own lane, lease, retries and gates. Tasks that only wait (approval, signal, sleep) are no children but waits of the
// execution itself, so that a signal that arrives before its task begins is kept.
//
// # State
//
// The runner keeps one state: a letter for each task, and for a foreach the numbers of the finished items. It takes
// all ends of children that have arrived, starts everything that is ready in one request, and then saves the state in
// one checkpoint that consumes all these ends. A run that takes the execution over between these writes receives the
// same ends again, computes the same children, and starts them again under the same ids, which does nothing. If a task
// has failed meanwhile, so that nothing may start any more, compensation first looks for the children that the lost run
// has started. Expressions have no side effects, so every run computes the same values.
//
// Outputs are not part of the state. The runner reads them from the children when an expression needs them.
//
// # Failure
//
// A task whose child has failed for good has failed; what happens then is the reaction that the document names. After a
// retry of the execution by an operator, tasks that have succeeded keep their results, and all others start again as
// children of the new generation.
package runner
