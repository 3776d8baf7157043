// Package config reads the configuration of a server from a file, the environment and flags. Flags
// outweigh the environment, the environment outweighs the file, and the file outweighs the
// defaults.
//
// The table [Keys] lists the keys of the configuration. The names in the file, the environment
// variables, the flags, the help and the page of the documentation are made from this table, so
// that they always agree.
//
// Reading is strict. An unknown key, a key that is given twice, and a value of the wrong type or
// out of range are errors. Each error names the place, the key and a correct value, and all errors
// of a configuration are reported together.
package config
