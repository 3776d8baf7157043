package machine

// Judger is a command with a part that can be decided without rows: whether its payload is valid,
// its hash, and the sum of its operation. The engine calls Judge before it begins the
// transaction, which must not wait while megabytes are checked. A command that was not judged
// before is judged when it is applied.
type Judger interface {
	Command
	Judge()
}

// judged is the result of Judge.
type judged struct {
	hash [32]byte
	sum  OpSum // if it has an operation id
	err  error // the rule that the payload breaks
}
