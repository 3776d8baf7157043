package engine

import (
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// reads returns the tables from which the store must load rows.
func reads(n *machine.Need) store.Tables {
	var t store.Tables
	for _, x := range []struct {
		named  int
		tables store.Tables
	}{
		{len(n.Workers), store.TableWorkers},
		{len(n.Held) + len(n.Executions), store.TableExecutions},
		{len(n.Owners), store.TableExecutions | store.TableWorkers},
		{len(n.Ready), store.TableExecutions | store.TableSpecs},
		{len(n.Keys), store.TableKeys},
		{len(n.Specs), store.TableSpecs},
		{len(n.Runs), store.TableRuns},
		{len(n.Ops), store.TableCheckpoints | store.TableSignals | store.TableActions},
		{len(n.Signals), store.TableSignals},
		{len(n.Chunks) + len(n.Drops) + len(n.Sums), store.TableChunks},
		{len(n.Checkpoints), store.TableCheckpoints},
		{len(n.Objects) + len(n.LaneGates) + len(n.Counts) + len(n.Using), store.TableObjects},
	} {
		if x.named > 0 {
			t |= x.tables
		}
	}
	return t
}

// writes returns the tables that the command c, which needs the rows n, may write.
func writes(c machine.Command, n *machine.Need) store.Tables {
	const all, ends = store.TableAll, store.TableExecutions | store.TableRuns | store.TableSignals |
		store.TableLetters | store.TableSpecs | store.TableKeys // an end may submit the deliveries of its notifications
	if len(n.Objects) > 0 && len(n.Executions) == 0 { // the command changes only API keys or documents
		return all | store.TableObjects
	}
	switch c.(type) {
	case *machine.Heartbeat, *machine.Open, *machine.Drain, *machine.Cordon, *machine.Probe,
		*machine.End, *machine.Expire, *machine.Vacate:
		return all | store.TableWorkers
	case *machine.Renew, *machine.Claim, *machine.Lock, *machine.Schedule, *machine.Accept:
		return all | store.TableWorkers | store.TableExecutions
	case *machine.Mark: // the commit of a mark locks the tables that a heartbeat writes
		return all | store.TableWorkers
	case *machine.Submit:
		if len(n.Keys) > 0 {
			return all | store.TableExecutions | store.TableSpecs | store.TableKeys
		}
		return all | store.TableExecutions | store.TableSpecs
	case *machine.Save:
		if len(n.Using) > 0 {
			return all | store.TableExecutions | store.TableCheckpoints | store.TableSignals | store.TableObjects
		}
		return all | store.TableExecutions | store.TableCheckpoints | store.TableSignals
	case *machine.Append:
		return all | store.TableExecutions | store.TableChunks
	case *machine.Deliver:
		return all | store.TableExecutions | store.TableSignals
	case *machine.Receive:
		return all | store.TableExecutions | store.TableSpecs | store.TableKeys | store.TableSignals |
			store.TableObjects
	case *machine.Progress:
		return all | store.TableExecutions
	case *machine.Settle:
		return all | ends
	case *machine.SetGate, *machine.Admit, *machine.Outcome:
		return all | store.TableExecutions | store.TableObjects
	}
	return all | ends | store.TableActions // all other commands, which the engine or an operator sends
}
