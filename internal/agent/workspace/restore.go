package workspace

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// restore is what a steward does for Restore.
func (m *Manager) restore(ctx context.Context, w *Workspace, bundle, patch []byte) error {
	scratch, lock, err := m.lockedDir("scratch", "restore-")
	if err != nil {
		return err
	}
	defer lock.Close()
	defer func() { _ = removeTree(scratch) }() // what stays is swept
	r := restore{g: &m.git, w: w, dir: filepath.Join(w.Dir, ".git"), scratch: scratch}
	if len(bundle) > 0 {
		if err := r.commits(ctx, bundle); err != nil {
			return fmt.Errorf("the commits: %w", err)
		}
	}
	if len(patch) > 0 {
		if err := r.files(ctx, patch); err != nil {
			return fmt.Errorf("what was not committed: %w", err)
		}
	}
	return nil
}

// restore is one Restore under way.
type restore struct {
	g            *git
	w            *Workspace
	dir, scratch string
}

func (r *restore) git(ctx context.Context, c command) (string, error) {
	c.dir = r.dir
	out, err := r.g.run(ctx, c)
	return strings.TrimSpace(string(out)), err
}

// commits takes in a bundle and stands where it says.
func (r *restore) commits(ctx context.Context, bundle []byte) error {
	state, err := unbundle(ctx, r.g, r.dir, r.w.Commit, bundle)
	if err != nil {
		return err
	}
	had, err := r.git(ctx, command{args: []string{"for-each-ref", "--format=%(refname)", "refs/heads/"}})
	if err != nil {
		return err
	}
	// Detached first: a branch that is checked out and goes would take HEAD with it.
	if _, err := r.git(ctx, command{args: []string{"update-ref", "--no-deref", "HEAD", r.w.Commit}}); err != nil {
		return err
	}
	var updates strings.Builder
	for ref := range strings.SplitSeq(had, "\n") {
		if ref != "" && state.branches[ref] == "" {
			fmt.Fprintf(&updates, "delete %s\n", ref)
		}
	}
	if _, err := r.git(ctx, command{stdin: strings.NewReader(updates.String()), args: []string{"update-ref", "--no-deref", "--stdin"}}); err != nil {
		return err
	}
	updates.Reset()
	for _, ref := range sortedKeys(state.branches) {
		fmt.Fprintf(&updates, "update %s %s\n", ref, state.branches[ref])
	}
	if _, err := r.git(ctx, command{stdin: strings.NewReader(updates.String()), args: []string{"update-ref", "--stdin"}}); err != nil {
		return err
	}
	return r.enter(ctx, state.head)
}

// enter makes HEAD be h, and index and work tree what it says.
func (r *restore) enter(ctx context.Context, h head) error {
	var calls [][]string
	if h.ref != "" {
		calls = append(calls, []string{"symbolic-ref", "HEAD", h.ref})
	} else {
		calls = append(calls, []string{"update-ref", "--no-deref", "HEAD", h.commit})
	}
	for _, args := range append(calls, []string{"reset", "--quiet", "--hard"}) {
		if _, err := r.git(ctx, command{tree: r.w.Dir, args: args}); err != nil {
			return err
		}
	}
	return nil
}

// files brings the work tree to HEAD and the patch, and the index to HEAD. The
// patch is applied to trees and not to files, so that line endings and links that
// it passes on its way do not matter.
func (r *restore) files(ctx context.Context, patch []byte) error {
	index := filepath.Join(r.scratch, "index")
	from := "HEAD^{tree}"
	if _, err := r.git(ctx, command{args: []string{"rev-parse", "--verify", "--quiet", from}}); err != nil {
		empty, err := r.git(ctx, command{stdin: bytes.NewReader(nil), args: []string{"mktree"}})
		if err != nil {
			return err
		}
		from = empty
	}
	if _, err := r.git(ctx, command{index: index, args: []string{"read-tree", from}}); err != nil {
		return err
	}
	if _, err := r.git(ctx, command{
		tree: r.w.Dir, index: index, stdin: bytes.NewReader(patch), args: []string{"apply", "--cached", "--binary", "--whitespace=nowarn", "-"},
	}); err != nil {
		return err
	}
	to, err := r.git(ctx, command{index: index, args: []string{"write-tree"}})
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"read-tree", "-m", "-u", from, to}, // the files, with the index
		{"read-tree", from},                 // the index back, without the files
		{"update-index", "-q", "--refresh"},
	} {
		_, err := r.git(ctx, command{tree: r.w.Dir, args: args})
		if err != nil && !(args[0] == "update-index" && exitCode(err) == 1) { // which says that there are changes
			return err
		}
	}
	return r.readd(ctx, from, to)
}

// readd stages the new files that are ignored: they had been added by force, and
// the next Salvage would take them for build output.
func (r *restore) readd(ctx context.Context, from, to string) error {
	added, err := r.git(ctx, command{args: []string{"diff-tree", "-r", "-z", "--no-renames", "--diff-filter=A", "--name-only", from, to}})
	if err != nil || added == "" {
		return err
	}
	names := "./" + strings.ReplaceAll(strings.TrimSuffix(added, "\x00"), "\x00", "\x00./") + "\x00"
	ignored, err := r.git(ctx, command{tree: r.w.Dir, stdin: strings.NewReader(names), args: []string{"check-ignore", "--no-index", "-z", "--stdin"}})
	if exitCode(err) == 1 { // none
		return nil
	}
	if err != nil {
		return err
	}
	_, err = r.git(ctx, command{tree: r.w.Dir, stdin: strings.NewReader(ignored), args: []string{"update-index", "--add", "-z", "--stdin"}})
	return err
}
