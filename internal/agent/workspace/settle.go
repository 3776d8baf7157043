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

// settlePause is how often a workspace is looked at that another sweep has in hand.
const settlePause = 20 * time.Millisecond

// Settle returns when the workspaces for which mine answers true are salvaged and gone,
// those whose owner is proven dead: it salvages them itself, or waits for another sweep
// that does. Without it a sweep passes over a workspace that another one has in hand, and
// the work in it is not among [Manager.Kept] yet.
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

// settleMost is how long a workspace is waited for that cannot be salvaged yet: another
// sweep may take salvageMost, and a run that has its user as long as it likes.
const settleMost = salvageMost + 30*time.Second

func (m *Manager) settleOne(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleMost, fmt.Errorf("it is still in somebody else's hands after %s",
		settleMost))
	defer cancel()
	root := filepath.Join(m.dir, "jobs", id)
	for m.abandoned(root) {
		if err := m.bury(ctx, id); err != nil {
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
