// Package workspace makes the directories in which commands work: isolated git
// checkouts at an exact commit, what a command changed in them, and their end.
//
// # Layout
//
//	base/HASH          one bare, warm clone per repository, owner and credential, never
//	                   worked in; the keeper's
//	base/HASH.json     what is known of it
//	base/HASH.lock     flock: whoever makes or fetches the base holds it
//	base/HASH.use      flock: whoever copies or replaces the base holds it, for a
//	                   moment; its time of change is when the base was used last
//	jobs/DIR/checkout  the work tree, with a .git of its own
//	jobs/DIR/home, tmp HOME and TMPDIR of the command
//	jobs/DIR/owner.json
//	                   whose it is; the directory is flocked while that process lives
//	jobs/DIR/notes     how the checkout was handed over: index, refs, configuration
//	jobs/DIR/objects   the objects of the base, where the workspace has its own user
//	kept/ID            what was salvaged from a workspace whose owner died
//	scratch/           a directory for each helper
//
// # Who runs what
//
// No git, and nothing else that reads what others can write, runs with more rights than
// whoever owns it. This process, which may be root, runs no git on a source, a base or a
// workspace and reads no contents of these. It opens directories, makes and removes them,
// links objects, counts, and waits. Helpers do the rest: this program under another name
// ([Helper]), started by package process, sealed, without a network unless it is said,
// within limits, and killed with their parent.
//
//   - The reader reads a local source, as its owner; root's as the keeper. It has the
//     directory by a descriptor, opened once by the path without links that was judged,
//     and may write nothing. For each line that a keeper speaks on it starts upload-pack.
//   - The keeper (Manager.Keeper) looks into one base, and fetches into it: over lines
//     that lead to the reader, or to an ssh that this process starts with its user's keys,
//     or by https, which is when it has the network and the credential.
//   - The steward does everything in a workspace, as its user: the checkout, git-crypt,
//     what is restored, what is salvaged.
//
// An order goes in by standard input and comes from here. An answer comes out by standard
// output, is bounded, and is taken for what the helper's user could have said: names are
// checked, texts are shortened and made printable. A credential goes to the keeper of its
// repository alone.
//
// Without root there is one user, and helpers are held as well as the machine can.
//
// # Before the command
//
// [Manager.Prepare] brings the base up to date and gives its objects to the checkout,
// which is empty and has been in nobody's hands. They are hard-linked only where the
// command gets a user of its own (Manager.Users): through a link, a command of the user
// that we are could rewrite the objects of every job to come. A base that is half made,
// corrupt or locked by a dead git is made anew beside the old one and takes its place by a
// rename. A base that is warm answers nobody who could not fetch it: its name is made of
// the repository, whoever owns that, and the credential.
//
// The lock that set-ups wait for is held while objects are copied, and for nothing else;
// [Manager.Locks] tells for how long. Fetching has a lock of its own, for which only those
// wait who need what is fetched.
//
// All of it is done within PrepareTimeout, within the limits of a command, and within the
// quota of the workspace. What is to be checked out is counted first: a repository of
// kilobytes can unpack to more than any disk has.
//
// A repository of git-crypt is unlocked with Manager.CryptKey before the command is
// there. What is salvaged is encrypted again, with our key and our program.
//
// Every git that runs here has an environment of its own: no configuration of the
// system or the user, no hooks, no fsmonitor, no prompts, protocols on a list.
//
// # After the command
//
// Nothing in the workspace is trusted any more, also not by its steward.
// [Manager.Salvage] never lets git see the workspace's .git: its configuration could name
// programs, and git would run them. HEAD and refs are parsed, from regular files within
// bounds. Objects are read through a private git directory after a look for symbolic
// links and alternates, only to write the bundle; the bundle is then unpacked and checked
// in a second private directory that knows the base alone, and only from there the patch
// is made. So what was salvaged can be restored, or is named as lost.
//
// A file that nobody has touched since the command got it is not read again. The time
// of its last change says so, which the kernel sets and no user can; what was noted of
// it is believed only by the process that noted it.
//
// The caller has ended every process of the command before it salvages or removes, or
// made it stand still.
//
// # Ends
//
// [Workspace.Remove] takes a workspace away. What dies before that is found by
// [Manager.Sweep]: a workspace goes when its owner is proven dead, by its identity
// or because nobody holds the lock on its directory, which the kernel lets go of
// with the process. What was unfinished in it is salvaged first, as its user, who is
// taken back for as long (Manager.Retake), and kept for a while; [Manager.Garbage] lists
// what would go, and why.
//
// Whatever is counted or removed here is reached by descriptors, directory by directory:
// no link in the place of one is followed.
package workspace
