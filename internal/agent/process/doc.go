// Package process runs one command under supervision: the command inherits only what the caller
// lists, this package can find every process that the command starts, and no process is left when
// the run is over, however it ends.
//
// # The supervisor
//
// This program starts itself a second time as a supervisor, a process named "belay-init RUN", and
// the supervisor starts the command. So [Main] must be the first call in main, and in the TestMain
// of every package whose tests start commands: Main returns at once in an ordinary process and
// never in a supervisor.
//
// The supervisor is the ancestor of every process that the command starts:
//
//   - [PIDNamespace] (root): the supervisor is process 1 of a new PID namespace with a /proc of its
//     own. When it ends, the kernel kills every process in the namespace. No process inside can see
//     or signal a process outside.
//   - [UserNamespace] (other users, where the machine allows it): a PID namespace inside a user
//     namespace, which maps the user to itself and maps no other user.
//   - [Subreaper] (everywhere): a process whose parent has ended becomes a child of the supervisor.
//     Where Landlock restricts signals (Linux 6.12), the command cannot kill its supervisor.
//     Without Landlock the command can kill a supervisor of the same user. This package then finds
//     the remaining processes by the run's cgroup, if the run has a cgroup, and by the mark (see
//     below). In a run without a cgroup, a process that has also removed the mark from its
//     environment escapes. No process can escape in this way from a namespace.
//
// [Auto] tries these kinds and uses the strongest that works; the [Result] names it.
//
// # The ends
//
// Supervisor and parent are connected by a socket pair that no other process has open. Requests and
// reports go through this socket. An end of file on the socket shows the supervisor that the parent
// has ended, even by kill -9; the supervisor then kills every process of the run at once.
//
//   - The command ends by itself: its descendants get a moment to end on their own, then SIGTERM,
//     and at the end of the grace period SIGKILL. When all descendants have ended, the supervisor
//     ends, and then Wait returns.
//   - The command is cancelled (by the context, by its timeout, or by an error of Output): all its
//     processes get SIGTERM, and SIGKILL at the end of the grace period.
//   - The command is killed (by [Tree.Kill], by a cancel while it is frozen, or because the parent
//     has ended): all its processes get SIGKILL, without a grace period.
//   - The supervisor does not answer in time, or has ended: the parent itself kills the processes,
//     which it finds by their namespace, their ancestors, their cgroup and the mark.
//
// Wait returns within the grace period plus a bound even if a process holds the output pipe open,
// or Output blocks, or a process cannot be killed; the error then names that problem.
//
// # Freezing
//
// [Tree.Freeze] stops every process of the tree and returns when no process runs any more. It uses
// the cgroup freezer where it can make a cgroup. Elsewhere it sends SIGSTOP to each process until
// the process table shows no new process. Frozen time does not count towards the timeout. If a
// frozen tree is cancelled, it is killed without being thawed, because it was frozen so that it has
// no more effects.
//
// # Walls
//
// A command inherits no environment, no open file, no terminal and no right to new privileges.
// Beyond that, walls isolate the command, as far as the caller requests them and the machine
// supports them. A wall is one restriction on what the run can do outside of itself: to files, to
// processes, to the network, or with resources. The walls on which the caller does not insist may
// be missing. [Walls] lists the walls that were applied, each with the means that enforce it; a
// [*WallError] names a wall that the caller insists on and that this machine cannot provide.
//
//   - [Command.User], from a [Pool], gives each run a user and a group that no other run has at the
//     same time: runs can neither signal nor read each other.
//   - [Command.Writable] seals the file system: every mount is read-only except for the run's own
//     directories. If the run's user may not pass through a directory on the path to one of these
//     directories, a new directory that contains only the rest of the path covers that directory.
//   - Empty files and directories cover [Command.Hidden], except for [Command.Readable]. The
//     directories of [Command.Secrets] are covered too, and their other entries are mounted again
//     in the covers. So a file that replaces a secret is not visible either. Landlock hides the
//     secrets in the root directory, in /run, and in directories with very many entries.
//   - [Command.Network] is closed, or leads only to one proxy.
//   - [Command.Limits] are enforced by cgroups, v2 or v1, whose files the command may not write.
//     The supervisor stays outside these cgroups, so that the limits cannot stop it. Where a cgroup
//     controller is missing, resource limits (rlimits) replace it: the limit on processes then
//     counts all processes of the user, and the limit on memory applies to each process alone. A
//     process of this program named "belay-limits" sets the rlimits on itself and then executes the
//     command; the supervisor never has these limits.
//
// In a [PIDNamespace] and in a [UserNamespace] the run also has its own IPC namespace and its own
// host name. Landlock, in every kind of isolation, enforces the same rules a second time: no write
// outside Writable, no signal and no debugger to processes outside the run, no connection to
// abstract sockets of other runs. In a [Subreaper] Landlock is the only means of these walls.
// Landlock is weaker than mounts: it grants rights over whole directories, and does not protect
// modes, owners and times of files. In a Subreaper a seccomp filter of system calls closes the
// network, because Landlock restricts only some of the ways to connect. In a walled run, root keeps
// the usual capabilities of a container, but no capability with which it could undo a wall.
//
// # The thread that starts the command
//
// A command inherits its walls from the thread that starts it. The supervisor has a thread that
// only starts the command: this thread has its own mount namespace, is restricted by Landlock and
// the filter, and has no capabilities. The supervisor's other threads see the machine as it is, and
// can freeze, signal and count the run's processes. Landlock lets a process signal every thread of
// its own domain, and the thread that starts the command is in the domain of the command. So where
// Landlock alone protects the supervisor, "belay-limits" moves the command into an inner domain. The
// supervisor and helpers are not dumpable, nor is a program that calls [Undumpable]: a process of
// the same user cannot read the memory, the environment and the descriptors of such a process.
//
// # The mark
//
// Every process of a run has BELAY_RUN=<run id> in its environment. By this mark, and by the run's
// cgroup, [SweepOrphans] finds the processes of runs whose Belay process has ended.
package process
