package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of what is read of a .git that a command has had in its hands.
const (
	maxRefFile    = 64 << 10
	maxPackedRefs = 64 << 20
	maxShallow    = 1 << 20
	maxBranches   = 10_000
	maxIndex      = 256 << 20
)

// repository is what the .git of a checkout says, read without git.
type repository struct {
	dir      string
	objects  string
	head     head
	branches map[string]string // refs/heads/… to commits
}

// readRepository reads HEAD and the branches from regular files in real
// directories, and makes sure that the objects lie in the checkout.
func readRepository(dir string) (*repository, error) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil, errors.New("it is not a directory")
	}
	r := &repository{dir: dir, objects: filepath.Join(dir, "objects"), branches: make(map[string]string)}
	if err := checkObjects(r.objects); err != nil {
		return nil, err
	}
	if err := r.readPacked(); err != nil {
		return nil, err
	}
	if err := r.readLoose(); err != nil {
		return nil, err
	}
	raw, err := readRegular(filepath.Join(dir, "HEAD"), maxRefFile)
	if err != nil {
		return nil, fmt.Errorf("HEAD: %w", err)
	}
	text := strings.TrimSpace(string(raw))
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		r.head.ref = strings.TrimSpace(target)
		r.head.commit = r.branches[r.head.ref]
		if branch, ok := strings.CutPrefix(r.head.ref, "refs/heads/"); !ok || !checkBranch(branch) {
			return nil, errors.New("HEAD leads to no branch")
		}
		return r, nil
	}
	if !isObject(text) {
		return nil, errors.New("HEAD holds neither a branch nor a commit")
	}
	r.head.commit = text
	return r, nil
}

// moved tells whether HEAD or a branch is not what it was.
func (r *repository) moved(w *Workspace) bool {
	was := target{commit: w.Commit, branch: w.Branch}
	if r.head != (head{ref: was.ref(), commit: w.Commit}) {
		return true
	}
	if was.ref() == "" {
		return len(r.branches) > 0
	}
	return len(r.branches) != 1 || r.branches[was.ref()] != w.Commit
}

func (r *repository) readPacked() error {
	raw, err := readRegular(filepath.Join(r.dir, "packed-refs"), maxPackedRefs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("packed-refs: %w", err)
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if commit, ref, ok := strings.Cut(line, " "); ok {
			if err := r.branch(ref, commit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *repository) readLoose() error {
	heads := filepath.Join(r.dir, "refs", "heads")
	for _, dir := range []string{filepath.Dir(heads), heads} {
		if info, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil || !info.IsDir() {
			return errors.New("refs is not a directory")
		}
	}
	return filepath.WalkDir(heads, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("refs: %w", err)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(heads, path)
		if err != nil {
			return err
		}
		raw, err := readRegular(path, maxRefFile)
		if err != nil {
			return fmt.Errorf("refs: %w", err)
		}
		return r.branch("refs/heads/"+filepath.ToSlash(rel), strings.TrimSpace(string(raw)))
	})
}

// branch notes a branch if it is one.
func (r *repository) branch(ref, commit string) error {
	name, ok := strings.CutPrefix(ref, "refs/heads/")
	if !ok || !checkBranch(name) || !isObject(commit) {
		return nil
	}
	if len(r.branches) >= maxBranches {
		return fmt.Errorf("more than %d branches", maxBranches)
	}
	r.branches[ref] = commit
	return nil
}

// checkObjects makes sure that a directory of objects is one, that reading it
// cannot block, and that it neither leads nor points to another place.
func checkObjects(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a directory", filepath.Base(path))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return errors.New("objects is not a directory")
	}
	if _, err := os.Lstat(filepath.Join(dir, "info", "alternates")); !errors.Is(err, fs.ErrNotExist) {
		return errors.New("it borrows objects from another place")
	}
	return nil
}

// readRegular reads a regular file within a limit; it follows no symbolic link and
// waits for nobody.
func readRegular(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return raw, err
}
