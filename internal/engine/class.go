package engine

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// class is the priority of a command. An overloaded server first keeps its sessions alive, then
// ends runs, then lets queued executions start, and accepts new executions last.
type class uint8

const (
	// alive is for commands that keep sessions alive: heartbeats, renewals, marks of life (times
	// that show that a server runs), new sessions.
	alive class = iota
	// owned is for writes of owners, orders of operators, and commands that the engine itself
	// sends.
	owned
	// claiming is for commands that give executions to owners.
	claiming
	// clientWork is for the submissions and signals of clients. If there is too much work, the
	// engine refuses only this class.
	clientWork
	classes
)

// classOf returns the class of a command. A child that a run submits counts as a write of that run.
func classOf(c machine.Command) class {
	switch c := c.(type) {
	case *machine.Heartbeat, *machine.Renew, *machine.Mark, *machine.Open:
		return alive
	case *machine.Claim, *machine.Lock, *machine.Schedule, *machine.Accept:
		return claiming
	case *machine.Submit:
		if c.Parent == nil {
			return clientWork
		}
	case *machine.Deliver, *machine.Receive:
		return clientWork
	}
	return owned
}

// sizeOf is the approximate number of payload bytes that a command writes.
func sizeOf(c machine.Command) int {
	switch c := c.(type) {
	case *machine.Submit:
		return len(c.Input) + len(c.TriggerPayload)
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
	case *machine.Receive:
		return len(c.Event.Data)
	case *machine.Act:
		return len(c.Input)
	case *machine.ApplyDocument:
		return len(c.Text)
	}
	return 0
}

// sessionOf returns the session that a heartbeat or a renewal renews, and the zero id for other
// commands.
func sessionOf(c machine.Command) belay.WorkerID {
	switch c := c.(type) {
	case *machine.Heartbeat:
		return c.Worker
	case *machine.Renew:
		return c.Worker
	}
	return belay.WorkerID{}
}
