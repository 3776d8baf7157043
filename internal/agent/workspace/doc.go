// Package workspace makes the directories in which commands work: isolated git
// checkouts at an exact commit, what a command changed in them, and their end.
//
// # Layout
//
//	base/HASH          one bare, warm clone per repository, never worked in
//	base/HASH.lock     flock: whoever makes or fetches the base holds it
//	base/HASH.use      flock: whoever copies or replaces the base holds it, for a
//	                   moment; its time of change is when the base was used last
//	jobs/ID/checkout   the work tree, with a .git of its own
//	jobs/ID/home, tmp  HOME and TMPDIR of the command
//	jobs/ID/owner.json whose it is; the directory is flocked while that process lives
//	jobs/ID/index      the files as the command got them
//	kept/ID            what was salvaged from a workspace whose owner died
//	scratch/           private git directories of a salvage, files of a restore
//
// # Before the command
//
// [Manager.Prepare] brings the base up to date and copies its objects. They are
// hard-linked only where the command gets a user of its own (Manager.Users):
// through a link, a command of the user that we are could rewrite the objects of
// every job to come. A base that is half made, corrupt or locked by a dead git is made
// anew beside the old one and takes its place by a rename.
//
// The lock that set-ups wait for is held while refs and objects are copied, and for
// nothing else; [Manager.Locks] tells for how long. Fetching has a lock of its own,
// for which only those wait who need what is fetched.
//
// Files that get another owner look changed to git, which would read them all again:
// its index is told of the owner before the command is there.
//
// A repository of git-crypt is unlocked with Manager.CryptKey before the command is
// there. What is salvaged is encrypted again, with our key and our program.
//
// Every git that runs here has an environment of its own: no configuration of the
// system or the user, no hooks, no fsmonitor, no prompts, protocols on a list.
//
// # After the command
//
// Nothing in the workspace is trusted any more. [Manager.Salvage] never lets git
// see the workspace's .git: its configuration could name programs, and git would
// run them as us. HEAD and branches are parsed here, from regular files within
// bounds. Objects are read through a private git directory after a look for
// symbolic links and alternates, only to write the bundle; the bundle is then
// unpacked and checked in a second private directory that knows the base alone,
// and only from there the patch is made. So what was salvaged can be restored, or
// is named as lost.
//
// A file that nobody has touched since the command got it is not read again. The time
// of its last change says so, which the kernel sets and no user can; what was noted of
// it is believed only by the process that noted it.
//
// The caller has ended every process of the command before it salvages or removes.
//
// # Ends
//
// [Workspace.Remove] takes a workspace away. What dies before that is found by
// [Manager.Sweep]: a workspace goes when its owner is proven dead, by its identity
// or because nobody holds the lock on its directory, which the kernel lets go of
// with the process. What was unfinished in it is salvaged first, and kept for a
// while; [Manager.Garbage] lists what would go, and why.
package workspace
