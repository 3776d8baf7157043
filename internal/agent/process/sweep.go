package process

import "github.com/belaydev/belay/internal/host"

// Orphan is a process that outlived the owner of its run and was killed.
type Orphan struct {
	RunID   string
	Process host.Process
}
