package storetest

import (
	"slices"

	"github.com/belaydev/belay/internal/machine"
)

// labels lists the kinds of commands. In a random walk (a long sequence of commands) each must be
// accepted at least once.
var labels = []string{
	"submit", "submit child", "submit with key", "submit by content", "repeated submit", "repeated submit with key",
	"repeated submit by content", "open", "repeated open",
	"claim", "repeated claim",
	"schedule", "accept", "save step", "save state", "save wait", "save consuming", "repeated save step", "append",
	"repeated append",
	"append and drop", "progress", "settle succeeded", "settle failed", "settle timed_out", "settle suspended",
	"settle preempted",
	"settle released", "settle cancelled", "repeated settle succeeded", "release", "lose", "expire", "end", "end dead",
	"drain", "heartbeat",
	"signal", "repeated signal", "cancel", "pause", "resume", "retry", "requeue", "fork", "steal", "preempt",
	"repeated cancel",
	"cancel child", "tick", "prune", "lock", "repeated lock", "renew", "vacate", "create key", "revoke key",
	"repeated revoke key", "submit with gates", "set gate", "repeated set gate", "admit", "outcome", "call target",
	"no worker", "cordon", "uncordon", "cancel replaced", "failed probe", "probe",
	"begin swap", "end swap", "ask holders", "yield",
}

// label names the kind of a command.
func label(c machine.Command) string {
	switch c := c.(type) {
	case *machine.Submit:
		switch {
		case c.Parent != nil:
			return "submit child"
		case c.Idempotency != "":
			return "submit by content"
		case c.IdempotencyKey != "":
			return "submit with key"
		case !c.Gates.IsZero():
			return "submit with gates"
		}
		return "submit"
	case *machine.Save:
		if c.Consumes != 0 {
			return "save consuming"
		}
		return "save " + c.Kind.String()
	case *machine.Append:
		if c.DropTo > c.DropFrom {
			return "append and drop"
		}
		return "append"
	case *machine.Settle:
		return "settle " + c.Outcome.String()
	case *machine.End:
		if c.Dead != "" {
			return "end dead"
		}
		return "end"
	case *machine.Act:
		return string(c.Action)
	case *machine.Open:
		return "open"
	case *machine.Claim:
		return "claim"
	case *machine.Schedule:
		return "schedule"
	case *machine.Accept:
		return "accept"
	case *machine.Undeliver:
		return "undeliver"
	case *machine.Progress:
		return "progress"
	case *machine.Release:
		return "release"
	case *machine.Lose:
		return "lose"
	case *machine.Expire:
		return "expire"
	case *machine.Cordon:
		if c.Off {
			return "uncordon"
		}
		return "cordon"
	case *machine.Probe:
		if c.Error != "" {
			return "failed probe"
		}
		return "probe"
	case *machine.Drain:
		return "drain"
	case *machine.Heartbeat:
		return "heartbeat"
	case *machine.Deliver:
		return "signal"
	case *machine.CancelChild:
		return "cancel child"
	case *machine.CancelReplaced:
		return "cancel replaced"
	case *machine.NoWorker:
		return "no worker"
	case *machine.Part:
		return "part"
	case *machine.Tick:
		return "tick"
	case *machine.Lock:
		return "lock"
	case *machine.Renew:
		return "renew"
	case *machine.Vacate:
		return "vacate"
	case *machine.CreateKey:
		return "create key"
	case *machine.RevokeKey:
		return "revoke key"
	case *machine.ApplyDocument:
		return "apply document"
	case *machine.ChangeDocument:
		return "change document"
	case *machine.SetGate:
		return "set gate"
	case *machine.Admit:
		return "admit"
	case *machine.Outcome:
		return "outcome"
	case *machine.CallTarget:
		return "call target"
	case *machine.BeginSwap:
		return "begin swap"
	case *machine.EndSwap:
		return "end swap"
	case *machine.AskHolders:
		return "ask holders"
	case *machine.Yield:
		return "yield"
	}
	panic("storetest: a command without a label")
}

// unseen lists the kinds of commands that were never accepted.
func unseen(seen map[string]int) []string {
	var missing []string
	for _, name := range labels {
		if seen[name] == 0 {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
