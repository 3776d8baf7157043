//go:build !linux

package workspace

import (
	"fmt"
	"os"

	"github.com/belaydev/belay/internal/host"
)

// origin is not used on this system, where local sources are not supported.
type origin struct {
	dir, git *os.File
	owner    uint32
	bare     bool
}

func (s source) open() (*origin, error) {
	return nil, fmt.Errorf("open repository %s: %w", s, host.ErrUnsupported)
}

func (o *origin) close() {}
