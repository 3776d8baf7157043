package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/belaydev/belay"
)

// fill puts into a claimed workspace what spec asks for.
func (m *Manager) fill(ctx context.Context, w *Workspace, spec Spec, src source) error {
	if spec.Repo == "" {
		return nil
	}
	dirty, err := m.checkout(ctx, w, spec, src, true)
	w.DirtySource = dirty
	return err
}

// checkout makes the checkout of a workspace. It tells whether a local source has
// changes that are not committed, if status asks for that.
func (m *Manager) checkout(ctx context.Context, w *Workspace, spec Spec, src source, status bool) (dirty bool,
	err error) {
	if m.git.bin == "" {
		return false, errNoGit
	}
	b := m.base(src)
	var reads *readerPeer
	switch {
	case src.local:
		if reads, err = m.read(ctx, src, status); err != nil {
			return false, err
		}
		b.peer = reads
	case !strings.HasPrefix(src.url, "https://"):
		b.peer = newSSHPeer(ctx, &m.git, src)
	}
	err = m.clone(ctx, b, w, spec, false)
	if err != nil && ctx.Err() == nil && !final(err) {
		// The base is damaged where a fetch did not look.
		if rerr := m.clone(ctx, b, w, spec, true); rerr == nil || final(rerr) {
			err = rerr
		} else {
			err = errors.Join(err, rerr)
		}
	}
	if err == nil && reads != nil {
		return reads.dirty(), nil
	}
	var complaint string
	var why error
	if b.peer != nil {
		complaint, why = b.peer.end()
	}
	if err = explain(src, err, complaint, why); err != nil && !final(err) {
		return false, fmt.Errorf("check out %s: %w", src, err)
	}
	return false, err
}

// explain adds to the error of a source that cannot be fetched what is known from the
// other end of the lines, and whether trying again may mend it.
func explain(src source, err error, complaint string, why error) error {
	var e *belay.Error
	switch {
	case !errors.As(err, &e) || e.Code != belay.CodeUnavailable || e.Err == nil:
		return err
	case final(why):
		return why
	}
	cause := e.Err
	if complaint != "" {
		cause = fmt.Errorf("%s; %w", complaint, cause)
	}
	if !src.local && !refused(cause.Error()) {
		cause = fmt.Errorf("%w: %w", ErrUnreachable, cause)
	}
	return &belay.Error{Code: e.Code, Message: e.Message, Err: cause}
}

// final tells errors that a new base does not cure.
func final(err error) bool {
	var e *belay.Error
	return errors.As(err, &e)
}

// clone makes the checkout out of the base.
func (m *Manager) clone(ctx context.Context, b *base, w *Workspace, spec Spec, damaged bool) error {
	for range 3 {
		f, dir, err := b.locate(ctx, spec, damaged)
		if err != nil {
			return err
		}
		err = m.cloneFrom(ctx, b, dir, w, f)
		_ = dir.Close()
		if !errors.Is(err, errExchanged) {
			return err
		}
	}
	return errExchanged
}

func (m *Manager) cloneFrom(ctx context.Context, b *base, dir *os.File, w *Workspace, f *found) error {
	if err := w.empty(); err != nil {
		return err
	}
	w.Commit, w.Branch, w.shallow, w.key = f.Commit, string(f.Branch), f.Shallow, filepath.Base(b.dir)
	w.objects = m.objectsOf(w)
	if err := m.stock(ctx, b, dir, w); err != nil {
		return err
	}
	return m.populate(ctx, w, &fillOrder{Refs: f.Refs, Head: b.state.Head})
}

// objectsOf is where the objects of a workspace's base are: those that it was given
// itself, where the command cannot change them.
func (m *Manager) objectsOf(w *Workspace) string {
	if w.User != nil {
		return filepath.Join(w.root, "objects")
	}
	return filepath.Join(m.dir, "base", w.key, "objects")
}

// empty takes back what an earlier try has put into a workspace.
func (w *Workspace) empty() error {
	err := emptyTree(w.Dir)
	if w.User != nil {
		err = errors.Join(err, removeTree(filepath.Join(w.root, "objects")))
	}
	return err
}

// deepen tells a git directory where the history of a shallow source ends.
func deepen(dir string, shallow []byte) error {
	if len(shallow) == 0 {
		return nil
	}
	return writeFile(filepath.Join(dir, "shallow"), shallow)
}

// format names the hash of a commit's name.
func format(commit string) string {
	if len(commit) == 64 {
		return "sha256"
	}
	return "sha1"
}

func (t target) ref() string {
	if t.branch == "" {
		return ""
	}
	return "refs/heads/" + t.branch
}

// head is what HEAD leads to: a ref or a commit, or a ref without a commit.
type head struct {
	ref    string // refs/heads/…; "" for a detached HEAD
	commit string // "" for a branch without a commit
}
