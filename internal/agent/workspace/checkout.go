package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// fill puts into a claimed workspace what spec asks for.
func (m *Manager) fill(ctx context.Context, w *Workspace, spec Spec, src source) error {
	if spec.Repo != "" {
		if err := m.checkout(ctx, w, spec, src); err != nil {
			return err
		}
		if err := m.unlock(ctx, w); err != nil {
			return err
		}
		w.DirtySource = m.dirty(ctx, src)
	}
	if err := m.configure(ctx, w); err != nil {
		return err
	}
	if err := m.settle(w); err != nil {
		return err
	}
	return w.note()
}

// checkout makes the checkout of a workspace.
func (m *Manager) checkout(ctx context.Context, w *Workspace, spec Spec, src source) error {
	err := m.clone(ctx, m.base(src), w, spec, false)
	if err != nil && ctx.Err() == nil && !final(err) {
		// The base is damaged where a fetch did not look.
		if rerr := m.clone(ctx, m.base(src), w, spec, true); rerr == nil || final(rerr) {
			err = rerr
		} else {
			err = errors.Join(err, rerr)
		}
	}
	if err != nil && !final(err) {
		return fmt.Errorf("check out %s: %w", src, err)
	}
	return err
}

// final tells errors that a new base does not cure.
func final(err error) bool {
	var e *belay.Error
	return errors.As(err, &e)
}

// clone makes the checkout out of the base. The base is held only while its objects
// are copied.
func (m *Manager) clone(ctx context.Context, b *base, w *Workspace, spec Spec, damaged bool) error {
	t, err := b.locate(ctx, spec, damaged)
	if err != nil {
		return err
	}
	if err := removeTree(w.Dir); err != nil {
		return err
	}
	w.Commit, w.Branch, w.objects = t.commit, t.branch, filepath.Join(b.dir, "objects")
	dir := filepath.Join(w.Dir, ".git")
	if _, err := m.git.run(ctx, command{args: []string{
		"init", "--quiet", "--template=", "--initial-branch=" + cmp.Or(t.branch, "main"), "--object-format=" + format(t.commit), w.Dir,
	}}); err != nil {
		return err
	}
	if err := m.copyBase(ctx, b, w); err != nil {
		return err
	}
	if err := deepen(dir, w.shallow); err != nil {
		return err
	}
	for _, args := range [][]string{{"update-ref", "--no-deref", cmp.Or(t.ref(), "HEAD"), t.commit}, {"reset", "--quiet", "--hard"}} {
		if _, err := m.git.run(ctx, command{dir: dir, tree: w.Dir, args: args}); err != nil {
			return err
		}
	}
	return nil
}

// copyBase copies refs and objects, in this order: what a fetch adds meanwhile is
// not missed.
func (m *Manager) copyBase(ctx context.Context, b *base, w *Workspace) error {
	release, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if w.shallow, err = os.ReadFile(filepath.Join(b.dir, "shallow")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.refs(ctx, b, w); err != nil {
		return err
	}
	// Only where the command runs as another user than whom the objects belong to
	// can it not rewrite them through a link.
	if err := copyTree(ctx, w.objects, filepath.Join(w.Dir, ".git", "objects"), w.User != nil); err != nil {
		return fmt.Errorf("copy the objects: %w", err)
	}
	return nil
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

// refs gives the checkout what a clone of the true remote would have.
func (m *Manager) refs(ctx context.Context, b *base, w *Workspace) error {
	out, err := m.git.run(ctx, command{dir: b.dir, args: []string{
		"for-each-ref", "--format=%(objectname) %(*objectname) %(refname)", "refs/heads/", "refs/tags/",
	}})
	if err != nil {
		return err
	}
	var packed strings.Builder
	packed.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(f) != 3 {
			return fmt.Errorf("git for-each-ref: %q", line)
		}
		if branch, ok := strings.CutPrefix(f[2], "refs/heads/"); ok {
			f[2] = "refs/remotes/origin/" + branch
		}
		fmt.Fprintf(&packed, "%s %s\n", f[0], f[2])
		if f[1] != "" {
			fmt.Fprintf(&packed, "^%s\n", f[1])
		}
	}
	dir := filepath.Join(w.Dir, ".git")
	if err := writeFile(filepath.Join(dir, "packed-refs"), []byte(packed.String())); err != nil {
		return err
	}
	if branch, ok := strings.CutPrefix(b.state.Head, "refs/heads/"); ok {
		origin := filepath.Join(dir, "refs", "remotes", "origin")
		if err := os.MkdirAll(origin, 0o700); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(origin, "HEAD"), []byte("ref: refs/remotes/origin/"+branch+"\n")); err != nil {
			return err
		}
	}
	return m.origin(dir, w)
}

// origin points the checkout at the true remote, not at the base.
func (m *Manager) origin(dir string, w *Workspace) error {
	f, err := os.OpenFile(filepath.Join(dir, "config"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("[remote \"origin\"]\n\turl = %s\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", quote(w.Repo))
	if w.Branch != "" {
		text += fmt.Sprintf("[branch %s]\n\tremote = origin\n\tmerge = %s\n", quote(w.Branch), quote("refs/heads/"+w.Branch))
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// head is what HEAD leads to: a ref or a commit, or a ref without a commit.
type head struct {
	ref    string // refs/heads/…; "" for a detached HEAD
	commit string // "" for a branch without a commit
}

// dirty asks a local source for changes that are not committed. No answer is no.
func (m *Manager) dirty(ctx context.Context, src source) bool {
	if !src.local || !ours(src.url) {
		return false // git would run what another user's configuration names
	}
	out, err := m.git.run(ctx, command{remote: &src, args: []string{"-C", src.url, "status", "--porcelain", "-z", "--ignore-submodules=all"}})
	return err == nil && len(out) > 0
}

// copyTree copies directories and regular files, or links the latter; there is
// nothing else in a base. What a fetch has under way is left out.
func copyTree(ctx context.Context, from, to string, link bool) error {
	transfer := copyFile
	if link {
		transfer = linkFile
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case strings.HasPrefix(d.Name(), "tmp_") || strings.HasPrefix(d.Name(), ".tmp-") || strings.HasSuffix(d.Name(), ".keep"):
			return nil
		case d.Type().IsRegular():
			return transfer(path, filepath.Join(to, rel))
		}
		return fmt.Errorf("%s is neither a file nor a directory", path)
	})
}

// linkFile makes a second name for a file that everybody may read. Across file
// systems it copies.
func linkFile(from, to string) error {
	if info, err := os.Lstat(from); err == nil && info.Mode().Perm() != 0o444 {
		if err := os.Chmod(from, 0o444); err != nil { //nolint:gosec // the way there is closed to others
			return err
		}
	}
	err := os.Link(from, to)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EMLINK) {
		return copyFile(from, to)
	}
	return err
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err == nil {
		err = dst.Chmod(info.Mode().Perm())
	}
	return errors.Join(err, dst.Close())
}

// ours tells whether a file belongs to the user we are.
func ours(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
