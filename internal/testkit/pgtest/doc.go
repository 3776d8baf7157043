// Package pgtest gives tests a private PostgreSQL server, from the binaries of this machine.
//
// A server has its own temporary directory, with a Unix socket in it, and listens on a free port of
// the loopback. It keeps every write that it acknowledges (fsync is on unless a test turns it off).
// PostgreSQL refuses to run as root; in a test that runs as root, the server runs as the user
// postgres.
//
// # Nothing is left behind
//
// A small shell runs between a test process and its server. It takes commands from a pipe whose
// other end only the test process has. When the test process ends, in any way, the pipe closes, and
// the shell stops the server and removes the directory.
//
// # Without binaries
//
// BELAY_TEST_POSTGRES is the URL of a server to use instead, whose user may create databases. With
// such a server, tests that stop their server are skipped. If there is neither such a server nor a
// binary, tests are skipped with the reason, or fail if BELAY_TEST_REQUIRE is set.
package pgtest
