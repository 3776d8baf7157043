package host

import "errors"

var (
	// ErrForeign means that a process belongs to another boot or PID namespace, so that its number
	// means another process here, or none.
	ErrForeign = errors.New("the process cannot be identified from here")

	// ErrUnsupported means that this operating system cannot prove the death of a process.
	ErrUnsupported = errors.New("process identity needs Linux")
)
