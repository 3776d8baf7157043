// Package secret reads files with secrets, and removes secrets from output ([Hider]). It refuses a
// file that other users can change. It also refuses a file that other users can read, if this user
// could change its mode.
//
// A file that other users can read is accepted with a warning if this user cannot change its mode,
// because the file belongs to root or is on a read-only file system. Systems for containers mount
// secrets in this way, and in a container there are no other users. [Check] returns the warning.
package secret
