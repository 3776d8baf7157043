// Package config is what a server reads from its file, its environment and its
// flags, in that order of rising weight, on top of defaults.
//
// One table, [Keys], says what there is to set. The names in the file, the
// environment variables, the flags, the help and the page of the documentation
// all come from it, so that they cannot differ.
//
// Reading is strict: what is unknown, of the wrong type, out of range or said
// twice is an error that names where it stands, the key, and what would be
// right. All errors of a configuration are reported together.
package config
