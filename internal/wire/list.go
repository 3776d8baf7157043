package wire

import "github.com/belaydev/belay"

// Events is part of a history.
type Events struct {
	Events []belay.Event `json:"events"`
}

// Workers are sessions: first the sessions that have not ended, and of these the newest first.
type Workers struct {
	Workers []belay.Worker `json:"workers"`
}

// Signals are signals not consumed yet, in order of seq.
type Signals struct {
	Signals []belay.Signal `json:"signals"`
}

// Keys are keys without their secrets, oldest first.
type Keys struct {
	Keys []belay.Key `json:"keys"`
}

// Token has the token that another system needs to refuse a writer with an older token.
type Token struct {
	Token belay.Token `json:"token" doc:"The newest token of the execution: a writer with a lower token is no longer the owner."`
	State belay.State `json:"state"`
	// Worker is the session that owns the execution.
	Worker belay.WorkerID `json:"worker,omitzero" doc:"The session that owns the execution, if it has an owner."`
}

// TokenOf converts an execution's token for the wire.
func TokenOf(x *belay.Execution) Token { return Token{x.Token, x.State, x.Worker} }

// Health is the answer of a server that works.
type Health struct {
	Status  string `json:"status" enum:"ok"`
	Version string `json:"version,omitempty"`
	// Notes are warnings for operators about problems that do not prevent the server from accepting work.
	Notes []string `json:"notes,omitempty" doc:"Warnings for operators although the server takes work, for example that its clock was set or that a new epoch began."`
}

// End is the data of the last event of a stream.
type End struct {
	State belay.State `json:"state"`
	Seq   int64       `json:"seq"`
}
