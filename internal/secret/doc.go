// Package secret reads files that hold secrets, and refuses those that others can
// change, or that others can read although it is in this user's hands to keep them
// from it.
//
// A file that others can read and that this user cannot close (root's, or on a file
// system that is mounted to be read) is taken: so secrets are mounted into
// containers, where there are no others. [Warning] says so where it is told.
package secret
