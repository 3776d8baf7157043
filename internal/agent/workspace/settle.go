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

// settlePause is how often Settle checks whether another sweep has finished salvaging a workspace.
const settlePause = 20 * time.Millisecond

// Settle salvages and removes every dead workspace for which mine returns true. If another sweep is
// salvaging such a workspace, Settle waits until that sweep has finished, so that the work is then
// in [Manager.Kept]. Sweep would not wait for another sweep.
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

// settleTimeout is the maximum wait for a workspace that cannot be salvaged yet: another sweep may
// need salvageTimeout, and another run may use the workspace's user for any time.
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
