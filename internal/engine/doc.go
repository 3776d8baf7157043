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
// What these keep in memory are hints. Losing all of it changes how long
// things take and nothing else: the sweep and a slow poll find everything in
// the store's rows.
//
// # Stopping
//
// Close stops in two stages: new calls are refused as unavailable and waiting
// claims answered empty; then what has queued is committed, and the services
// end.
package engine
