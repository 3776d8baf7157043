package engine

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// class is how urgent a command is. A server that is asked for more than it can do
// first keeps its sessions alive, then ends what was begun, then begins what is there,
// and only then accepts more.
type class uint8

const (
	// alive keeps sessions: heartbeats, renewals, marks of life.
	alive class = iota
	// owned is what owners write, what operators order, and what the engine finds due.
	owned
	// claiming gives executions to owners.
	claiming
	// asked is what clients hand in: submissions and signals. It alone is refused when
	// there is too much of it.
	asked
	classes
)

// classOf is the class of a command. A child that a run submits is a part of that run.
func classOf(c machine.Command) class {
	switch c := c.(type) {
	case *machine.Heartbeat, *machine.Renew, *machine.Mark, *machine.Open:
		return alive
	case *machine.Claim, *machine.Lock, *machine.Schedule, *machine.Accept:
		return claiming
	case *machine.Submit:
		if c.Parent == nil {
			return asked
		}
	case *machine.Deliver:
		return asked
	}
	return owned
}

// sizeOf is about how many bytes a command writes beside its rows.
func sizeOf(c machine.Command) int {
	switch c := c.(type) {
	case *machine.Submit:
		return len(c.Input)
	case *machine.Save:
		return len(c.Data)
	case *machine.Settle:
		if c.Failure != nil {
			return len(c.Output) + len(c.Failure.Message) + len(c.Failure.Stack)
		}
		return len(c.Output)
	case *machine.Append:
		return len(c.Data)
	case *machine.Deliver:
		return len(c.Payload)
	case *machine.Act:
		return len(c.Input)
	}
	return 0
}

// sessionOf is the session that a sign of life renews, zero if it is none.
func sessionOf(c machine.Command) belay.WorkerID {
	switch c := c.(type) {
	case *machine.Heartbeat:
		return c.Worker
	case *machine.Renew:
		return c.Worker
	}
	return belay.WorkerID{}
}
