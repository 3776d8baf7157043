package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/belaydev/belay"
)

// CheckOut makes a checkout for a person in dir, which must be empty or not exist, and applies s,
// the saved work of a command, except HOME. The checkout belongs to no job, and Sweep never removes
// it. spec names the repository and the commit; its ID is ignored. left describes the parts of the
// work that were not applied because they would make git run programs as that person. CheckOut
// returns the same errors as Prepare.
func (m *Manager) CheckOut(ctx context.Context, spec Spec, dir string, s Salvage) (left []string, err error) {
	spec.ID = "checkout"
	src, err := m.source(spec)
	if err != nil {
		return nil, err
	}
	if spec.Repo == "" {
		return nil, invalid("check out: no repository")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return nil, &belay.Error{
			Code: belay.CodeConflict, Message: fmt.Sprintf("%s is not empty; name a directory that is empty or "+
				"does not exist", dir),
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf("%s cannot be used: %v", dir, err)}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // git clone uses the same mode
		return nil, &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf("%s cannot be used: %v", dir, err)}
	}
	w := &Workspace{ID: spec.ID, Dir: dir, Repo: src.url, Ref: spec.Ref, m: m}
	_, err = m.checkout(ctx, w, spec, src, false)
	if err == nil {
		s.Home = nil
		left, err = m.restoreBy(ctx, w, s, true)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("check out into %s: %w", dir, err), removeTree(dir))
	}
	return left, nil
}
