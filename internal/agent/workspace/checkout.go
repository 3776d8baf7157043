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

// fill makes the checkout that spec describes in a new workspace; without a repository it does
// nothing.
func (m *Manager) fill(ctx context.Context, w *Workspace, spec Spec, src source) error {
	if spec.Repo == "" {
		return nil
	}
	dirty, err := m.checkout(ctx, w, spec, src, true)
	w.DirtySource = dirty
	return err
}

// checkout makes the checkout of a workspace. If status is true and the source is a local
// directory, it also reports whether the source has uncommitted changes.
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
		// The base (the cached clone) may be damaged in files that the fetch did not read, so a new base
		// is made.
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

// explain adds to the error of a fetch the error output of the peer (the process that answers git
// for the source). It marks the error as ErrUnreachable if a retry may succeed.
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

// final reports whether err would also occur with a newly made base. Such an error does not come
// from a damaged base.
func final(err error) bool {
	var e *belay.Error
	return errors.As(err, &e)
}

// clone makes the checkout from the objects of the base (the cached clone).
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

// objectsOf returns the directory with the objects on which a workspace is based. If the workspace
// has its own user, this is a directory in the workspace that the command cannot change; otherwise
// it is the base itself (the cached clone).
func (m *Manager) objectsOf(w *Workspace) string {
	if w.User != nil {
		return filepath.Join(w.root, "objects")
	}
	return filepath.Join(m.dir, "base", w.key, "objects")
}

// empty removes the files of an earlier attempt from a workspace.
func (w *Workspace) empty() error {
	err := emptyTree(w.Dir)
	if w.User != nil {
		err = errors.Join(err, removeTree(filepath.Join(w.root, "objects")))
	}
	return err
}

// deepen records in a git directory the commits at which the history of a shallow source ends.
func deepen(dir string, shallow []byte) error {
	if len(shallow) == 0 {
		return nil
	}
	return writeFile(filepath.Join(dir, "shallow"), shallow)
}

// format returns the hash algorithm of a commit's name.
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

// head is the value of HEAD: a ref and its commit, a ref without a commit, or a commit without a
// ref.
type head struct {
	ref    string // refs/heads/…; "" for a detached HEAD
	commit string // "" for a branch without a commit
}
