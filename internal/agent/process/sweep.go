package process

import "github.com/belaydev/belay/internal/host"

// Orphan is a process that still ran after the owner of its run had ended, and that a sweep has
// killed.
type Orphan struct {
	RunID   string
	Process host.Process
}
