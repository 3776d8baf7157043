package machine

// Judger is a command of which a part is decided without rows: whether its payload
// is sound, its hash, and what it says under its operation id. Judge does so before there is a transaction, which must
// not wait while megabytes are looked through. Deciding judges what was not judged
// before.
type Judger interface {
	Command
	Judge()
}

// judged is what a command says by itself.
type judged struct {
	hash [32]byte
	sum  OpSum // if it has an operation id
	err  error // it breaks a rule
}
