package wire

import "github.com/belaydev/belay"

// Lock is the body of a request for a lock: the caller, which is not a worker, asks to become the
// owner of an execution.
type Lock struct {
	ID     belay.WorkerID `json:"id,omitzero" doc:"The id of the lock's session, made by the client. A repeat with the same id finds the lock."`
	Owner  string         `json:"owner" minLength:"1" maxLength:"200" doc:"Names the owner for people."`
	TTL    belay.Duration `json:"ttl,omitempty" doc:"How long the lock lives after a heartbeat; 30s by default."`
	Reopen bool           `json:"reopen,omitempty" doc:"Opens a failed or cancelled execution again in the same commit."`
	TTLMS  int64          `json:"ttl_ms,omitempty" minimum:"0" doc:"ttl in milliseconds."`
}

// Request converts the request for a lock from the wire. The error is CodeInvalid if the text and the milliseconds of
// the TTL differ.
func (w *Lock) Request(execution belay.ExecutionID) (belay.LockRequest, error) {
	r := belay.LockRequest{ID: w.ID, Execution: execution, Owner: w.Owner, TTL: w.TTL, Reopen: w.Reopen}
	err := eachDuration(millis{"ttl", &r.TTL, w.TTLMS})
	return r, err
}

// LockReply is a lock with the execution and its progress.
type LockReply struct {
	Lease       LockLease       `json:"lease"`
	Execution   belay.Execution `json:"execution"`
	Checkpoint  *Checkpoint     `json:"checkpoint" doc:"The newest checkpoint; null if there is none, or if more is true."`
	Checkpoints []Checkpoint    `json:"checkpoints,omitempty" doc:"The newest checkpoint of each key."`
	Signals     []belay.Signal  `json:"signals,omitempty"`
	More        bool            `json:"more,omitempty" doc:"The answer had no room for all checkpoints and signals: read the rest with readCheckpoints."`
}

// LockLease is the lease of a lock.
type LockLease struct {
	LockID              LeaseID     `json:"lock_id" doc:"Proves ownership: send it in the path of the heartbeat, and in the header Lease-Id. Never log it."`
	Token               belay.Token `json:"token" doc:"The fencing token: send it in the header Lease-Token, and with writes to other systems."`
	ExpiresInMS         int64       `json:"expires_in_ms"`
	HeartbeatIntervalMS int64       `json:"heartbeat_interval_ms"`
}

// LockReplyOf converts a lock for the wire.
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

// Lock converts the lock from the wire.
func (w *LockReply) Lock() belay.Lock {
	return belay.Lock{
		Lease: belay.Lease{Execution: w.Execution.ID, Worker: w.Lease.LockID.Worker, Token: w.Lease.Token,
			Secret: w.Lease.LockID.Secret},
		ExpiresIn: Duration(w.Lease.ExpiresInMS), Heartbeat: Duration(w.Lease.HeartbeatIntervalMS),
		Execution: w.Execution, Checkpoints: checkpoints(w.Checkpoints), Signals: w.Signals, More: w.More,
	}
}
