// Package engine runs the rules of package machine on a store.
//
// # One door
//
// Every write is a command through the [committer]: it gathers whatever has
// queued while the last transaction was in flight and commits it as one. There
// is no timer in it, so a lone command waits for nothing, and under load
// batches grow by themselves. A batch that the store refuses is halved until
// the poisoned command stands alone and is refused by itself.
//
// # Services
//
// The [dispatcher] parks claims until there may be work in their lanes and
// serves them together. The sweeper is the reaper, the timers and the finder of
// what a crash forgot in one loop: it asks the store what is due, sends an
// ordinary command for each, and sleeps until the next moment that the store
// named. The hub wakes those who watch.
//
// # Several servers
//
// Any number of engines may write one store. There is no leader: claims pass over
// what another engine is just claiming, and sweepers that find the same thing due
// send the same command, of which the second is refused. A store that others write
// too is a [store.Hinter]: what they commit is heard of soon after, and each engine
// tells the others by its commits. While nothing can be heard, an engine looks at
// everything once a second.
//
// What an engine keeps in memory are hints. Losing all of it, or being told wrong,
// changes how long things take and nothing else:
//
//	what               may be wrong because                  then
//	lanes, their hints others made or filled one             it is read with the slow poll
//	sessions           others opened, drained or ended one   an unknown one is read; the commit of a
//	                                                         claim decides by the row
//	attention          others cancelled or signalled         the worker's own heartbeat brings it
//	open executions    others ended one                      who awaits it reads at the next poll
//	watchers           others changed what is watched        they read at the next poll
//	keys               others made or revoked one            they are read every five seconds
//	next sweep         others opened a session or wait for   the slow poll sweeps; while any session
//	                   something                             lives, every mark of life does
//	beat of marks      others know of a shorter TTL          the shorter one that was promised counts
//	sessions near      others opened one for a process here  they are listed with the slow poll
//
// What a batch finds is older than what was heard since it began: it takes nothing
// of that back.
//
// Every commit leaves a mark of life beside what it writes. After a gap in the marks
// of all engines, whoever judges first gives every session its time again; the end
// of one engine among several leaves no gap.
//
// # Stopping
//
// Close stops in two stages: new calls and waiting claims are refused as
// unavailable; then what has queued is committed, and the services end.
package engine
