// Package mqtest gives tests a private RabbitMQ server, from the programs of this machine.
//
// A server has its own temporary directory, with its data, its logs, its configuration and its own
// Erlang cookie in it. It runs as the user of the test, whether that is root or not. It has its own
// epmd (the program with which Erlang nodes find each other), and all its ports are free ports of the
// loopback that are chosen at its start, so that any number of servers can run at once, also beside a
// RabbitMQ of the machine.
//
// # Nothing is left behind
//
// A small shell runs between a test process and its server. It takes commands from a pipe whose
// other end only the test process has. When the test process ends, in any way, the pipe closes, and
// the shell ends the server and its epmd, both by their process ids, and removes the directory.
//
// # Without programs
//
// BELAY_TEST_RABBITMQ is the URL of a server to use instead, whose user may declare, delete, write
// and read queues and exchanges whose names begin with belay, and may write to the default exchange.
// With such a server, tests that stop their server or change it are skipped. If there is
// neither such a server nor a program, tests are skipped with the reason, or fail if
// BELAY_TEST_REQUIRE is set.
package mqtest
