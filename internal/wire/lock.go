package wire

import "github.com/belaydev/belay"

// Lock asks to own an execution from outside.
type Lock struct {
	ID     belay.WorkerID `json:"id,omitzero" doc:"The lock's session, made by the client: locking again with it finds the lock."`
	Owner  string         `json:"owner" minLength:"1" maxLength:"200" doc:"Says to people who it is."`
	TTL    belay.Duration `json:"ttl,omitempty" doc:"How long the lock lives after a heartbeat; 30s, unless said otherwise."`
	Reopen bool           `json:"reopen,omitempty" doc:"Opens a failed or cancelled execution again in the same commit."`
}

// LockReply is a lock.
type LockReply struct {
	Lease       LockLease       `json:"lease"`
	Execution   belay.Execution `json:"execution"`
	Checkpoint  *Checkpoint     `json:"checkpoint" doc:"The newest checkpoint; null if there is none, or if there is more."`
	Checkpoints []Checkpoint    `json:"checkpoints,omitempty" doc:"The newest of each key."`
	Signals     []belay.Signal  `json:"signals,omitempty"`
	More        bool            `json:"more,omitempty" doc:"The answer had no room for all checkpoints and signals: read the rest with readCheckpoints."`
}

// LockLease is the lease of a lock.
type LockLease struct {
	LockID              LeaseID     `json:"lock_id" doc:"Proves to be the owner: the path of the heartbeat, and the header Lease-Id. Never log it."`
	Token               belay.Token `json:"token" doc:"The fencing token: the header Lease-Token, and for third parties."`
	ExpiresInMS         int64       `json:"expires_in_ms"`
	HeartbeatIntervalMS int64       `json:"heartbeat_interval_ms"`
}

// LockReplyOf is a lock for the wire.
func LockReplyOf(l belay.Lock) LockReply {
	w := LockReply{
		Lease: LockLease{
			LockID: LeaseID{l.Lease.Worker, l.Lease.Secret}, Token: l.Lease.Token,
			ExpiresInMS: l.ExpiresIn.Milliseconds(), HeartbeatIntervalMS: l.Heartbeat.Milliseconds(),
		},
		Execution: l.Execution, Checkpoints: CheckpointsOf(l.Checkpoints), Signals: l.Signals, More: l.More,
	}
	if n := len(w.Checkpoints); n > 0 && !l.More {
		w.Checkpoint = &w.Checkpoints[n-1]
	}
	return w
}

// Lock is the lock as its noun.
func (w *LockReply) Lock() belay.Lock {
	return belay.Lock{
		Lease: belay.Lease{Execution: w.Execution.ID, Worker: w.Lease.LockID.Worker, Token: w.Lease.Token,
			Secret: w.Lease.LockID.Secret},
		ExpiresIn: Duration(w.Lease.ExpiresInMS), Heartbeat: Duration(w.Lease.HeartbeatIntervalMS),
		Execution: w.Execution, Checkpoints: checkpoints(w.Checkpoints), Signals: w.Signals, More: w.More,
	}
}
