package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits for reading a .git that a command can write.
const (
	maxRefFile    = 64 << 10
	maxPackedRefs = 32 << 20
	maxShallow    = 1 << 20
	maxIndex      = 128 << 20
	maxObjects    = 2_000_000 // number of files and directories
)

// repository is the content of a checkout's .git, which this package reads without git.
type repository struct {
	dir     string
	root    *os.Root // the directory dir, opened so that names cannot lead out of it
	objects string
	head    head
	refs    map[string]string // object of each ref, by the ref's full name
	links   map[string]string // target of each symbolic ref except HEAD
	// partial means that some refs could not be read.
	partial bool
}

// openRepository opens a .git and checks that its objects lie inside it.
func openRepository(ctx context.Context, dir string) (*repository, error) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil, errors.New("it is not a directory")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	r := &repository{
		dir: dir, root: root, objects: filepath.Join(dir, "objects"), refs: make(map[string]string),
		links: make(map[string]string),
	}
	if err := checkObjects(ctx, r.objects); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return r, nil
}

// readRepository reads HEAD and the refs, from regular files within limits. It records an
// unreadable ref in lost and keeps the other refs. If HEAD is unreadable, it uses handed: the value
// of HEAD before the command got the workspace.
func readRepository(ctx context.Context, dir string, handed head, lost *losses) (*repository, error) {
	r, err := openRepository(ctx, dir)
	if err != nil {
		return nil, err
	}
	r.readRefs(ctx, lost)
	r.head, err = r.readHead()
	if err == nil && r.head.commit == "" && r.partial {
		err = errors.New("its branch cannot be read")
	}
	if err != nil {
		lost.add("the value of HEAD (%v)", err)
		r.head = handed
		if commit := r.refs[handed.ref]; commit != "" {
			r.head.commit = commit
		}
	}
	return r, nil
}

func (r *repository) close() {
	if r != nil {
		_ = r.root.Close()
	}
}

func (r *repository) readHead() (head, error) {
	raw, err := r.read("HEAD", maxRefFile)
	if err != nil {
		return head{}, err
	}
	text := strings.TrimSpace(string(raw))
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		ref := strings.TrimSpace(target)
		if branch, ok := strings.CutPrefix(ref, "refs/heads/"); !ok || !checkBranch(branch) || checkRef(ref) != nil {
			return head{}, errors.New("it leads to no branch")
		}
		return head{ref: ref, commit: r.resolve(ref)}, nil
	}
	if !isObject(text) {
		return head{}, errors.New("it contains neither a branch nor a commit")
	}
	return head{commit: text}, nil
}

// resolve follows symbolic refs from ref and returns the object to which they lead; "" if they lead
// to no object.
func (r *repository) resolve(ref string) string { return resolve(r.refs, r.links, ref) }

func resolve(refs, links map[string]string, ref string) string {
	return refs[follow(links, ref)]
}

// follow follows symbolic refs that begin at ref and returns the last ref; "" if they lead to no
// ref.
func follow(links map[string]string, ref string) string {
	for range 5 { // git follows at most five symbolic refs
		to, ok := links[ref]
		if !ok {
			return ref
		}
		ref = to
	}
	return ""
}

// read reads a regular file in the .git, of at most limit bytes. It never blocks.
func (r *repository) read(name string, limit int64) ([]byte, error) {
	return readIn(r.root, name, limit)
}

// tail reads the last limit bytes of a regular file. cut is true if the file is larger than that.
func (r *repository) tail(name string, limit int64) (data []byte, cut bool, err error) {
	f, info, err := openIn(r.root, name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	from := max(info.Size()-limit, 0)
	data, err = io.ReadAll(io.NewSectionReader(f, from, limit))
	return data, from > 0, err
}

// openIn opens a regular file below root.
func openIn(root *os.Root, name string) (*os.File, os.FileInfo, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, withoutPath(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

var errNotRegular = errors.New("not a regular file")

// readIn reads a regular file below root within a limit.
func readIn(root *os.Root, name string, limit int64) ([]byte, error) {
	f, _, err := openIn(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readUpTo(f, limit)
}

func readUpTo(f *os.File, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		return nil, fmt.Errorf("more than %d bytes", limit)
	}
	return raw, err
}

// withoutPath removes the operation and the path from the text of a file error, because the caller
// adds the name of the file itself.
func withoutPath(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// checkObjects checks that a directory of objects contains only regular files and directories,
// because reading other files could block. It refuses symbolic links and alternates, because they
// could lead out of the directory.
func checkObjects(ctx context.Context, dir string) error {
	seen := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		seen++
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !d.IsDir() && !d.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a directory", filepath.Base(path))
		case seen > maxObjects:
			return fmt.Errorf("more than %d files", maxObjects)
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
		return errors.New("it refers to objects in another place (alternates)")
	}
	return nil
}

// readRegular reads a regular file of at most limit bytes. It does not follow a symbolic link and
// never blocks.
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
		return nil, errNotRegular
	}
	return readUpTo(f, limit)
}
