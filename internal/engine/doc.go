// Package engine runs the rules of package machine on a store.
//
// # Words
//
// A batch is a set of commands that one transaction writes. A session is the connection of a
// worker; to judge a session is to decide by its last renewal whether it has expired. A sign of
// life is a command that keeps a session alive: a heartbeat or a renewal. A mark of life is the
// time of a commit that could have renewed sessions; the store keeps it, to show that the engine
// works. The pulse is a goroutine that commits only signs of life and marks of life. Client work is
// the new executions and signals of clients. A parked claim is a worker's claim that waits because
// no lane that it can use has work. A hint is a guess about the store that speeds the engine up and
// decides nothing; news is a report that a hint may be out of date. Attention is a flag of a
// session: its worker should send a heartbeat, because the reply contains a change that concerns
// the worker.
//
// A suspect is an execution that was lost several times in a row and may be the cause of its
// workers' crashes; it runs alone.
//
// # One door for writes
//
// Every write is a command that goes through the [committer]. The committer collects the commands
// that arrive during a transaction and commits them as the next batch. It has no timer: a single
// command is committed at once, and batches grow under load. If the store refuses a batch, the
// committer halves it until the command that causes the refusal is alone in a batch and is refused.
//
// # Services
//
// The [dispatcher] parks claims until their lanes may have work and then serves them together. The
// sweeper reads from the store which sessions, timeouts and unfinished changes are due, sends an
// ordinary command for each, and sleeps until the time at which, by the store, further work will be
// due. The hub wakes callers that watch an execution.
//
// # Several servers
//
// Any number of engines may write to one store. There is no leader: a claim skips executions that
// another engine is claiming, and if two sweepers send the same command, the second is refused. A
// store to which several servers write is a [store.Hinter]: each commit sends hints to the other
// engines. While an engine receives no hints, it checks everything once a second.
//
// Everything that an engine keeps in memory is a hint. If hints are lost or wrong, the engine is
// slower and its results are the same. In this table, "others" are the other engines on the store:
//
//	hint                 may be wrong because               then
//	lanes, their hints   others added a lane or an          the slow poll reads the lanes
//	                     execution
//	sessions             others opened, drained or ended    an unknown session is read; the commit of a
//	                     a session                          claim decides by the row
//	attention            others cancelled or signalled      the worker's own heartbeat reports it
//	open executions      others ended an execution          callers of Await read at the next poll
//	watchers             others changed the execution       watchers read at the next poll
//	keys                 others made or revoked a key       keys are read every five seconds
//	time of the next     others opened a session or wrote   the slow poll sweeps; while a session is open,
//	sweep                an earlier deadline                the engine also sweeps at every mark of life
//	interval of marks    others opened a session with a     every engine uses the shortest interval that
//	                     shorter TTL                        an engine has written with its mark
//	sessions on this     others opened a session for a      the slow poll lists the sessions again
//	host                 process on this host
//
// A batch may read rows before a hint arrives. Hints that arrived after the batch began therefore
// override what the batch read.
//
// Each commit that writes sessions leaves a mark of life, and the sweeper writes one if no commit
// did. If all engines have stopped writing marks for a while, the first engine that judges sessions
// extends every session by that time. If one of several engines ends, the others still write marks,
// and no session is extended.
//
// # Stopping
//
// Close stops in two stages. First, new calls and parked claims are refused as unavailable. Then
// the queued commands are committed and the services end.
package engine
