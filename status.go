package belay

import "time"

// Status is the state of an execution after one of its transitions.
type Status struct {
	Execution ExecutionID `json:"execution"`
	// Seq is the seq of the execution's newest transition when it had this state.
	Seq   int64 `json:"seq"`
	State State `json:"state"`
	// Previous is the state before the change. It is 0 in a snapshot, and for a new execution.
	Previous   State       `json:"previous,omitempty"`
	Generation int         `json:"generation"`
	Workflow   string      `json:"workflow"`
	Version    string      `json:"version,omitempty"`
	Queue      string      `json:"queue"`
	Parent     ExecutionID `json:"parent,omitzero"`
	// Labels must not be changed, because other followers may have the same map.
	Labels map[string]string `json:"labels,omitempty"`
	// At is the time of the change, by the store's clock. It is zero in a snapshot.
	At time.Time `json:"at,omitzero"`
}

// StatusQuery selects the executions whose states Client.Follow reports. The zero StatusQuery selects
// all executions without a parent that have not ended.
type StatusQuery struct {
	// States are the states to follow; empty for the states of executions that have not ended.
	States   []State
	Workflow string
	Queue    string
	// Parent selects the children of one execution. Children also selects the children of all
	// executions.
	Parent   ExecutionID
	Children bool
	// Labels selects the executions that have all of these labels.
	Labels map[string]string
	// After is the Position of the last news that the caller has. If it is empty, or if the Backend
	// does not have all later changes any more, Follow begins with a snapshot.
	After string
	// Idle, if not 0, makes Follow report empty news when it has reported nothing for this time, and at
	// once when it continues after a position.
	Idle time.Duration
}

// StatusNews is what Client.Follow reports: a part of a snapshot, or changes, or nothing (see
// StatusQuery.Idle).
type StatusNews struct {
	// Snapshot is nil if the news are changes.
	Snapshot *StatusSnapshot
	Changes  []StatusChange
	// Position continues after these news (StatusQuery.After). It is empty in a snapshot before its
	// last part.
	Position string
}

// StatusSnapshot is a part of a snapshot: of the states of all executions that match the query. A
// snapshot replaces everything that Follow has reported before: executions that it does not contain
// do not match.
type StatusSnapshot struct {
	// Cause says why there is a snapshot.
	Cause SnapshotCause `json:"cause" enum:"begin,behind,lost,polled" doc:"Why there is a snapshot. begin: the stream begins. behind: the follower was too far behind, or asked for changes that the server does not have any more. lost: the server may have missed changes, or does not know the position that the follower asked for. After behind and lost, changes before the snapshot may be missing."`
	// First and Last mark the first and the last part of the snapshot, which may be the same.
	First bool `json:"first"`
	Last  bool `json:"last"`
	// Truncated says that more executions match the query than a snapshot may have (MaxSnapshot), or
	// that the search for them took too long. The snapshot has the newest of them; the others are
	// reported only when their state changes.
	Truncated  bool     `json:"truncated,omitempty" doc:"The snapshot lacks older executions that match: they are reported only when their state changes."`
	Executions []Status `json:"executions"`
}

// MaxSnapshot is the largest number of executions in a snapshot of Client.Follow.
const MaxSnapshot = 10_000

// SnapshotCause is the reason for a snapshot.
type SnapshotCause string

// The causes of snapshots. After all of them except SnapshotBegin, changes before the snapshot may be
// missing.
const (
	// SnapshotBegin: the caller has no position.
	SnapshotBegin SnapshotCause = "begin"
	// SnapshotBehind: the caller is so far behind that the Backend does not have all changes after
	// the caller's position any more.
	SnapshotBehind SnapshotCause = "behind"
	// SnapshotLost: the Backend may have missed changes, for example of another server, or it does
	// not know the caller's position, for example because the server was started again.
	SnapshotLost SnapshotCause = "lost"
	// SnapshotPolled: the Backend only reads the store and is not informed of changes; it has found
	// a difference.
	SnapshotPolled SnapshotCause = "polled"
)

// StatusChange is a change of an execution's state.
type StatusChange struct {
	Status
	// Matches says whether the execution matches the query now. If it is false, the execution matched
	// before the change.
	Matches bool `json:"matches" doc:"Whether the execution matches the query now. If not, it matched before the change."`
	// Position continues after this change; see StatusQuery.After.
	Position string `json:"-"`
}

// Selects reports whether the query selects an execution, whatever its state is.
func (q *StatusQuery) Selects(s *Status) bool {
	switch {
	case q.Workflow != "" && q.Workflow != s.Workflow,
		q.Queue != "" && q.Queue != s.Queue,
		!q.Parent.IsZero() && q.Parent != s.Parent,
		q.Parent.IsZero() && !q.Children && !s.Parent.IsZero():
		return false
	}
	for name, value := range q.Labels {
		if have, there := s.Labels[name]; !there || have != value {
			return false
		}
	}
	return true
}
