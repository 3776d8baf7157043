// Package secret reads files with secrets. It refuses a file that other users can change, and a file
// that other users can read if this user could change its mode.
//
// A file that other users can read and whose mode this user cannot change, since it belongs to root
// or is on a read-only file system, is accepted with a warning: secrets are mounted into containers
// in this way, where there are no other users. [Check] returns the warning.
package secret
