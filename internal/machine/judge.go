package machine

// Judger is a command of which a part can be computed without rows: whether the payload is valid, the
// payload's hash, and the checksum of the operation (OpSum). The engine calls Judge before it begins
// the transaction, so that the transaction does not wait while megabytes are checked. If the engine
// has not called Judge, apply calls it.
type Judger interface {
	Command
	Judge()
}

// judged is the result of Judge.
type judged struct {
	hash [32]byte
	// content is the idempotency key that follows from the content of a submission, if it is recognized
	// by its content.
	content string
	sum     OpSum // checksum of the operation, if the command has an operation id
	err     error // the rule that the payload breaks
}
