package wire

import "github.com/belaydev/belay"

// Events is a part of a history.
type Events struct {
	Events []belay.Event `json:"events"`
}

// Runs are the attempts at an execution, the newest first.
type Runs struct {
	Runs []belay.RunRecord `json:"runs"`
}

// Workers are sessions, the living first, newest first.
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

// Token is what a third party needs to know to refuse a stale writer.
type Token struct {
	Token belay.Token `json:"token" doc:"The newest token that was given out: whoever writes with a lower one is not the owner any more."`
	State belay.State `json:"state"`
	// Worker is the session that owns it.
	Worker belay.WorkerID `json:"worker,omitzero" doc:"The session that owns the execution, if one does."`
}

// TokenOf is an execution's token for the wire.
func TokenOf(x *belay.Execution) Token { return Token{x.Token, x.State, x.Worker} }

// Health says that the server answers.
type Health struct {
	Status  string `json:"status" enum:"ok"`
	Version string `json:"version,omitempty"`
	// Notes are worth knowing though the server takes work.
	Notes []string `json:"notes,omitempty" doc:"What is worth knowing though the server takes work: that its clock was set, that an epoch began."`
}

// End is the last of a stream of events.
type End struct {
	State belay.State `json:"state"`
	Seq   int64       `json:"seq"`
}
