// Package process runs one command under supervision: nothing of it is inherited
// by accident, everything it starts is known, and nothing of it is left when it
// is over, however it ends.
//
// # The supervisor
//
// The binary starts itself a second time, as a small supervisor named
// "belay-init RUN", and the supervisor starts the command. So [Main] must be the
// first call in main, and in the TestMain of every package whose tests start
// commands: it returns at once in an ordinary process and never in a supervisor.
//
// The supervisor is the root of everything that the command starts:
//
//   - [PIDNamespace] (root): it is process 1 of a new PID namespace with a /proc
//     of its own. When it ends, the kernel kills whatever is in the namespace, and
//     nothing inside can see or signal what is outside.
//   - [UserNamespace] (others, where the machine allows it): the same, inside a
//     user namespace that maps the user to itself and nobody else.
//   - [Subreaper] (everywhere): orphans become children of the supervisor instead
//     of leaving. A command of the same user can kill its supervisor; what then
//     remains is found by its cgroup, if the run has one, and by the mark below; where
//     there is no cgroup, a process that has removed the mark from its environment
//     as well escapes. The other two have no such hole.
//
// [Auto] takes the strongest that works, decided by trying; the [Result] says
// which it was.
//
// # The ends
//
// Supervisor and parent share a socket whose other end no other process holds.
// Requests and reports go through it; its end of file means that the parent is
// gone, by kill -9 as well, and then everything is killed at once.
//
//   - The command ends by itself: its descendants get a moment to end on their
//     own, then SIGTERM, and at the end of the grace SIGKILL. Only when all are gone
//     the supervisor ends, and only then Wait returns.
//   - It is cancelled (the context, its timeout, an error of Output): SIGTERM to
//     all, SIGKILL at the end of the grace.
//   - It is killed ([Tree.Kill], or cancelled while frozen, or the parent is gone):
//     SIGKILL to all, with no grace.
//   - The supervisor does not answer in time, or is gone: the parent kills from
//     outside, by namespace, by descent, by cgroup and by mark.
//
// Wait returns within the grace plus a bound even if a process holds the output
// pipe open, or Output blocks, or a process cannot be killed; the error says so.
//
// # Frozen
//
// [Tree.Freeze] stops every process of the tree and returns when none runs any
// more: with the cgroup freezer where a cgroup can be made, else by SIGSTOP to each
// until a look at all of them finds nothing new. The timeout stands still
// meanwhile. A frozen tree that is cancelled is killed without being thawed: it
// was frozen so that it has no more effects.
//
// # Apart from others
//
// A command inherits no environment, no open file, no terminal and no right to new
// privileges. Beyond that it is kept apart as far as the caller asks and the machine
// allows; [Tree.Describe] says what came of it.
//
//   - [Command.User], from a [Pool], gives each run a user and a group that nobody
//     else has at the time, and IPC of its own: runs can neither signal nor read each
//     other.
//   - [Command.Writable] seals the machine: every mount is read-only but for the
//     run's own directories. Where the way to these is closed to the run's user, what
//     closes it is hidden behind an empty directory that holds nothing but the way.
//   - [Command.Limits] are kept by cgroups, v2 or v1, whose files only root may
//     write; the supervisor stays outside of them, so that it can always act. Without
//     such a controller, resource limits stand in: for processes those of the user,
//     for memory that of each process. A root command can undo any of this: limits
//     hold an accident of root's, and the malice of others.
//
// # The mark
//
// Every process of a run has BELAY_RUN=<run id> in its environment. [SweepOrphans]
// finds by it, and by the run's cgroup, what an earlier process of this machine left
// behind.
package process
