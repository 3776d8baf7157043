// Package pgtest gives tests a private PostgreSQL, from the binaries of this
// machine.
//
// A server lives in a temporary directory of its own, on a Unix socket there and
// on a free port of the loopback, and keeps what it acknowledges (fsync is on
// unless a test says otherwise). PostgreSQL refuses to run as root; then it runs
// as the user postgres.
//
// # Nothing is left behind
//
// Between a test process and its server stands a small shell. It takes commands
// from a pipe whose other end only the test process holds: when that is gone,
// however it went, the shell stops the server and removes the directory.
//
// # Without binaries
//
// BELAY_TEST_POSTGRES names a server to use instead, by URL, whose user may
// create databases; tests that stop their server are skipped with it. Without
// either, tests are skipped and say why, or fail if BELAY_TEST_REQUIRE is set.
package pgtest
