package wire

// The events of the stream of the states of many executions.
const (
	// EventSnapshot carries a belay.StatusSnapshot.
	EventSnapshot = "snapshot"
	// EventChange carries a belay.StatusChange.
	EventChange = "change"
	// EventPosition has only an id: the client continues after it when it connects again.
	EventPosition = "position"
)
