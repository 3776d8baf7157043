// Package workspace makes the directories in which commands work: isolated git checkouts at an
// exact commit. It also salvages the changes of a command and removes the directories.
//
// # Words
//
//   - A source is a repository from which workspaces are made. A base is a bare clone of a source
//     that stays on this machine as a cache, so that later workspaces are made faster.
//   - A helper is a process of this program that works as another user. There are three kinds:
//     reader, keeper and steward. A helper's task is an errand. A trip is one run of a helper.
//   - A peer is the process that answers for a source. A line is one socket from a keeper to a peer,
//     over which git fetches.
//   - To hand over a workspace is to give it to its command. The notes record the workspace's state
//     at that time.
//   - To salvage is to save the changes of a command: a bundle of commits and a patch of files. The
//     changes are split into pieces: a branch is a piece, for example. A damaged piece is left out
//     and reported as lost; the other pieces are kept.
//   - To restore is to apply salvaged changes to a fresh checkout.
//   - To compose is to make one commit of salvaged changes, which can be pushed.
//   - The owner of a workspace is the process that made the workspace. Once the owner has ended
//     without removing the workspace, the workspace is abandoned, or dead.
//   - Populate fills a checkout with files, and stock gives it the objects of the base.
//
// # Layout
//
//	base/HASH          one bare, cached clone per repository, owner and credential; no command
//	                   works in it; its files belong to the keeper
//	base/HASH.json     its state: HEAD of the source and time of the last fetch
//	base/HASH.lock     flock: a process makes or fetches the base
//	base/HASH.use      flock: a process copies or replaces the base, for a moment; its time of
//	                   change is when the base was used last
//	jobs/DIR/checkout  the work tree, with a .git of its own
//	jobs/DIR/home, tmp HOME and TMPDIR of the command
//	jobs/DIR/owner.json
//	                   the owner; the directory is flocked while that process lives
//	jobs/DIR/notes     the checkout when it was handed over: index, refs, configuration
//	jobs/DIR/objects   the objects of the base, where the workspace has its own user
//	kept/ID            work that was salvaged from a dead workspace
//	scratch/           a directory for each helper
//
// # Which process runs what
//
// A program that reads files which a user can write, such as git, runs with the rights of that user
// and no more. This process, which may be root, runs no git on a source, a base or a workspace and
// reads no contents of these. It opens directories, makes and removes them, links objects, counts,
// and waits. Helpers do the rest. A helper is this program under another name ([Helper]), started
// by package process in a sandbox, within limits, and killed with its parent. It has no network
// unless stated below.
//
//   - The reader reads a local source as the user who owns it, and a source of root as the keeper.
//     It may write nothing. It gets a descriptor of the source's directory, which this process
//     opened by a checked path without symbolic links. It starts an upload-pack for each line that
//     a keeper uses.
//   - The keeper (Manager.Keeper) reads one base and fetches into it: over lines that lead to the
//     reader, or to an ssh that this process starts with its own user's keys, or by https. It has
//     the network and the credential only to fetch by https, or to push.
//   - The steward does everything in a workspace, as the workspace's user: it makes the checkout,
//     runs git-crypt, restores and salvages.
//
// A helper reads its order, which comes from this process, on standard input. It writes its answer
// to standard output. The answer is bounded, and this process trusts the answer no more than it
// trusts the helper's user: it checks names, shortens texts and makes the texts printable. Only the
// keeper of a repository gets that repository's credential.
//
// If this process is not root, all helpers run as the user of this process, in sandboxes as strong
// as the machine allows.
//
// # Before the command
//
// [Manager.Prepare] updates the base and gives its objects to the checkout, which is empty and to
// which no other user has had access. The objects are hard-linked only where the command has a user
// of its own (Manager.Users): through a link, a command that runs as the user of this process could
// rewrite the objects of every later job. A base that is half made, corrupt or locked by a dead git
// is made anew beside the old one and replaces it by a rename. Prepare uses an existing base only
// for callers who could fetch the repository themselves: the name of a base is a hash of the
// repository, the repository's owner and the credential.
//
// A call of Prepare locks the base only while it copies objects, and concurrent calls share that
// lock; [Manager.Locks] reports how long the lock is kept. A fetch has a lock of its own, and only
// calls that need the fetch wait for it.
//
// All of this happens within PrepareTimeout, within the limits of a command, and within the quota
// of the workspace. This package computes the size of the checkout before it writes the checkout,
// because a repository of kilobytes can unpack to more than a disk can store.
//
// A repository that is encrypted with git-crypt is decrypted with Manager.CryptKey before the
// command starts. Salvage encrypts files again, with the key and the git-crypt of this process.
//
// Every git of this package has an environment of its own: no configuration of the
// system or the user, no hooks, no fsmonitor, no prompts, and only listed protocols.
//
// # After the command
//
// Nothing in the workspace is trusted any more, not even by its steward. [Manager.Salvage] never
// lets git read the workspace's .git, whose configuration could name programs that git would run.
// The steward parses HEAD and refs itself, from regular files within bounds. It checks the objects
// for symbolic links and alternates and then reads them through a private git directory, only to
// write the bundle. It unpacks and checks the bundle in a second private directory that has only
// the base, and makes the patch from there. So everything in a salvage can be restored, and the
// salvage names everything else as lost.
//
// Salvage does not read files that were not touched after the workspace was handed over. It
// recognizes these files by their change times, which the kernel sets and no user can set. Only the
// process that recorded the change times uses them.
//
// The caller must end or freeze every process of the command before the caller salvages or removes
// the workspace.
//
// # A push
//
// [Manager.Compose] makes one commit of salvaged changes. A steward makes it in a private git
// directory that has only the objects of the base and of the bundle, without a network.
// [Manager.Push] pushes that commit. A keeper checks the pack of the steward in a git directory of
// its own (git fsck of each object, and no object is missing), and pushes from there. It may not
// write to the base. The keeper gets the credential for pushes; no process of the command, and no
// process that reads files of the command, gets it. The push ignores everything else in the
// checkout: its configuration, remotes, hooks, attributes, replaced objects and refs.
//
// # Ends
//
// [Workspace.Remove] removes a workspace. [Manager.Sweep] removes workspaces whose owner died
// without removing them. The owner is proven dead by its process identity, or because the lock on
// the directory is free: the kernel releases the lock when the owner ends. Before Sweep removes a
// workspace, it salvages unfinished work as the workspace's user. It reserves this user during the
// salvage (Manager.Retake), and keeps the salvaged work for a while. [Manager.Garbage] lists what a
// sweep would remove, and why.
//
// This package opens each directory that it counts or removes from the descriptor of the parent
// directory. So it does not follow a symbolic link that a command put in the place of a directory.
package workspace
