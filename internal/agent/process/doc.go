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
//     of leaving. Where Landlock knows signals (Linux 6.12), the command cannot kill its
//     supervisor. Elsewhere one of the same user can; what then remains is found by its
//     cgroup, if the run has one, and by the mark below; where there is no cgroup, a
//     process that has removed the mark from its environment as well escapes. The
//     other two have no such hole.
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
// allows. A wall that the caller does not insist on may be missing; [Walls] says what
// there is and by which means, and a [*WallError] what is missing that must not be.
//
//   - [Command.User], from a [Pool], gives each run a user and a group that nobody
//     else has at the time: runs can neither signal nor read each other.
//   - [Command.Writable] seals the machine: every mount is read-only but for the run's
//     own directories. Where the way to these is closed to the run's user, what closes
//     it is covered by an empty directory that holds nothing but the way.
//   - [Command.Hidden] is covered by something empty, but for [Command.Readable].
//   - [Command.Network] is closed, or leads to one proxy alone.
//   - [Command.Limits] are kept by cgroups, v2 or v1, whose files the command may not
//     write; the supervisor stays outside of them, so that it can always act. Without
//     such a controller, resource limits stand in: for processes those of the user,
//     for memory that of each process. This program sets them on itself, under the name
//     "belay-limits", and then becomes the command; the supervisor never has them.
//
// The namespaces have IPC and a name of the machine of their own. Landlock, in every
// isolation, says the same a second time: no write outside of the Writable, no signal
// and no debugger to processes outside of the run, no abstract socket of others. It is
// all there is of these walls in a [Subreaper], where it is weaker: rights are those over
// whole directories, and modes, owners and times of files are not covered. There a
// filter of system calls closes the network, since Landlock knows only some of the ways
// to connect. Root in a walled run keeps the capabilities that containers leave it, and
// none by which it could undo a wall.
//
// # The thread behind the walls
//
// A command inherits its walls from the thread that starts it. The supervisor has a
// thread for that alone, in a mount namespace of its own and under Landlock, the filter
// and without capabilities; its other threads see the machine as it is, and can freeze,
// signal and count the run. The supervisor, this program where it calls [Undumpable], and
// its helpers are not dumpable: a process of the same user can read neither their
// memory, their environment nor their descriptors.
//
// # The mark
//
// Every process of a run has BELAY_RUN=<run id> in its environment. [SweepOrphans]
// finds by it, and by the run's cgroup, what an earlier process of this machine left
// behind.
package process
