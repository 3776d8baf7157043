// Package process runs one command under supervision: the command inherits nothing by accident,
// every process that it starts is known, and none of them is left when the run is over, however it
// ends.
//
// # The supervisor
//
// The binary starts itself a second time, as a small supervisor named "belay-init RUN", and the
// supervisor starts the command. So [Main] must be the first call in main, and in the TestMain of
// every package whose tests start commands: it returns at once in an ordinary process and never in
// a supervisor.
//
// The supervisor is the ancestor of every process that the command starts:
//
//   - [PIDNamespace] (root): it is process 1 of a new PID namespace with a /proc of its own. When
//     it ends, the kernel kills every process in the namespace, and no process inside can see or
//     signal one outside.
//   - [UserNamespace] (others, where the machine allows it): the same, inside a user namespace that
//     maps the user to itself and maps no other user.
//   - [Subreaper] (everywhere): orphans become children of the supervisor instead of leaving. Where
//     Landlock knows signals (Linux 6.12), the command cannot kill its supervisor. Without it a
//     process of the same user can; the processes that remain then are found by their cgroup, if
//     the run has one, and by the mark (see below); where there is no cgroup, a process that has
//     also removed the mark from its environment escapes. The two kinds of namespaces have no such
//     hole.
//
// [Auto] tries these kinds and takes the strongest that works; the [Result] says which.
//
// # The ends
//
// Supervisor and parent are connected by a socket pair that no other process has open. Requests and
// reports go through it. End of file on it tells the supervisor that the parent has ended, also by
// kill -9; the supervisor then kills every process of the run at once.
//
//   - The command ends by itself: its descendants get a moment to end on their own, then SIGTERM,
//     and at the end of the grace period SIGKILL. When all are gone, the supervisor ends, and then
//     Wait returns.
//   - It is cancelled (the context, its timeout, an error of Output): SIGTERM to all, SIGKILL at
//     the end of the grace period.
//   - It is killed ([Tree.Kill], or cancelled while frozen, or the parent is gone): SIGKILL to all,
//     with no grace period.
//   - The supervisor does not answer in time, or is gone: the parent kills from outside, by
//     namespace, by descent, by cgroup and by mark.
//
// Wait returns within the grace period plus a bound even if a process holds the output pipe open,
// or Output blocks, or a process cannot be killed; the error says so.
//
// # Freezing
//
// [Tree.Freeze] stops every process of the tree and returns when none runs any more: with the
// cgroup freezer where a cgroup can be made, else by SIGSTOP to each process, until the process
// table shows no new one. The timeout does not count frozen time. A frozen tree that is cancelled
// is killed without being thawed: it was frozen so that it has no more effects.
//
// # Walls
//
// A command inherits no environment, no open file, no terminal and no right to new privileges.
// Beyond that it is isolated by walls, as far as the caller asks for them and the machine supports
// them. A wall is one restriction on what the run can do outside of itself: to files, to processes,
// to the network, or with resources. The walls on which the caller does not insist may be missing.
// [Walls] lists the walls that stand and the means of each; a [*WallError] names a wall that the
// caller insists on and that this machine cannot provide.
//
//   - [Command.User], from a [Pool], gives each run a user and a group that no other run has at the
//     same time: runs can neither signal nor read each other.
//   - [Command.Writable] seals the file system: every mount is read-only except for the run's own
//     directories. If the run's user may not pass a directory on the path to one of these, that
//     directory is covered by an empty one that contains only the rest of the path.
//   - [Command.Hidden] is covered by empty files and directories, except for [Command.Readable].
//   - [Command.Network] is closed, or leads only to one proxy.
//   - [Command.Limits] are enforced by cgroups, v2 or v1, whose files the command may not write;
//     the supervisor stays outside of these cgroups, so that it can always act. Without the
//     controller, resource limits (rlimits) replace it: the limit on processes then counts all
//     those of the user, and the limit on memory applies to each process alone. This program sets
//     them on itself, under the name "belay-limits", and then executes the command; the supervisor
//     never has them.
//
// With the namespaces the run also has its own IPC namespace and its own host name. Landlock, in
// every kind of isolation, enforces the same rules a second time: no write outside of Writable, no
// signal and no debugger to processes outside of the run, no connection to abstract sockets of
// others. In a [Subreaper] Landlock is the only means of these walls, and it is weaker than mounts:
// it grants rights over whole directories, and does not cover modes, owners and times of files. In
// a Subreaper a seccomp filter of system calls closes the network, since Landlock covers only some
// of the ways to connect. Root in a walled run keeps the capabilities that containers usually have,
// and none by which it could undo a wall.
//
// # The thread that starts the command
//
// A command inherits its walls from the thread that starts it. The supervisor has a thread only for
// that: it has its own mount namespace, is restricted by Landlock and the filter, and has no
// capabilities. The supervisor's other threads see the machine as it is, and can freeze, signal and
// count the run's processes. The supervisor, this program where it calls [Undumpable], and its
// helpers are not dumpable: a process of the same user can read neither their memory, their
// environment nor their descriptors.
//
// # The mark
//
// Every process of a run has BELAY_RUN=<run id> in its environment. By this mark, and by the run's
// cgroup, [SweepOrphans] finds the processes that a Belay process left behind on this machine when
// it ended.
package process
