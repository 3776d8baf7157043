package store

import (
	"cmp"
	"slices"

	"github.com/belaydev/belay"
)

// Tally counts work that has not ended.
type Tally struct {
	Executions  map[belay.State]int64       // executions that have not ended
	DeadLetters map[string]int64            // number of open dead letters, by reason
	Workers     map[belay.WorkerState]int64 // sessions of workers that have not ended; locks are not counted
	// Queues has the queues with the most executions that are due or owned, at most MaxTallied; Queues and Gates
	// are in the order of [Tally.Order]. If there are more queues, one entry without a name has the sums of the others.
	Queues []QueueLoad
	// Gates has the gates with the most places taken and executions waiting, as Queues has the queues.
	Gates []GateLoad
}

// MaxTallied is the largest number of names in Tally.Queues and in Tally.Gates.
const MaxTallied = 100

// QueueLoad counts the executions of a queue.
type QueueLoad struct {
	Queue string
	Due   int64 // executions that are due and that no worker owns; those that wait at a gate are not due
	Owned int64 // executions that a worker or a lock owns
}

// GateLoad counts the places of a gate that are taken, and the executions that wait at it.
type GateLoad struct {
	Gate          belay.GateID
	Held, Waiting int64
}

// NewTally makes a Tally of zeros.
func NewTally() Tally {
	return Tally{
		Executions: make(map[belay.State]int64), DeadLetters: make(map[string]int64),
		Workers: make(map[belay.WorkerState]int64),
	}
}

// Order sorts Queues and Gates by their names.
func (t *Tally) Order() {
	slices.SortFunc(t.Queues, func(a, b QueueLoad) int { return cmp.Compare(a.Queue, b.Queue) })
	slices.SortFunc(t.Gates, func(a, b GateLoad) int { return cmp.Compare(a.Gate, b.Gate) })
}

// AddQueue adds counts to the entry of a queue. The empty name stands for all queues that have no entry.
func (t *Tally) AddQueue(q QueueLoad) {
	for i := range t.Queues {
		if is := &t.Queues[i]; is.Queue == q.Queue {
			is.Due, is.Owned = is.Due+q.Due, is.Owned+q.Owned
			return
		}
	}
	t.Queues = append(t.Queues, q)
}
