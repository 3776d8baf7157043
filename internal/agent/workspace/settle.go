package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// settlePause is the interval at which Settle checks whether another process has finished salvaging
// a workspace.
const settlePause = 20 * time.Millisecond

// Settle handles the dead workspaces (workspaces whose owner died) for which the function mine
// returns true: it saves the changes in each workspace, and then removes the workspace. If another
// process is salvaging such a workspace, Settle waits until that process has finished; Sweep would
// not wait. After Settle the work of these workspaces is in [Manager.Kept].
func (m *Manager) Settle(ctx context.Context, mine func(id string) bool) error {
	entries, err := os.ReadDir(filepath.Join(m.dir, "jobs"))
	if err != nil {
		return fmt.Errorf("settle workspaces: %w", err)
	}
	for _, e := range entries {
		if id := e.Name(); !strings.HasPrefix(id, ".") && mine(id) {
			if err := m.settleOne(ctx, id); err != nil {
				return fmt.Errorf("settle workspace %s: %w", id, err)
			}
		}
	}
	return nil
}

// settleTimeout is how long Settle waits for a workspace whose changes it cannot save (salvage)
// yet. The time is longer than salvageTimeout, which another process may need to salvage the
// workspace. If another run uses the workspace's user for longer, Settle gives up.
const settleTimeout = salvageTimeout + 30*time.Second

func (m *Manager) settleOne(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, fmt.Errorf("another process still uses it after %s",
		settleTimeout))
	defer cancel()
	root := filepath.Join(m.dir, "jobs", id)
	for m.abandoned(root) {
		if err := m.salvageAndRemove(ctx, id); err != nil {
			return err
		}
		if _, err := os.Lstat(root); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
