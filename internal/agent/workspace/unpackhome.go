package workspace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// UnpackHome unpacks the saved HOME of a command into an existing directory. It refuses entries of
// the archive that lead out of the directory.
func UnpackHome(dir string, archive []byte) error { return unpackHome(dir, archive) }

func unpackHome(dir string, archive []byte) error {
	if len(archive) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	u := &unpacker{root: root, modes: make(map[string]fs.FileMode)}
	in := tar.NewReader(io.LimitReader(z, 4*maxHome))
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return u.finish()
		}
		if err == nil {
			err = u.put(head, in)
		}
		if err != nil {
			return err
		}
	}
}

// unpacker is the state of one call of UnpackHome.
type unpacker struct {
	root  *os.Root
	count int
	size  int64
	modes map[string]fs.FileMode // modes of directories, set at the end
}

func (u *unpacker) put(head *tar.Header, in io.Reader) error {
	name := path.Clean(head.Name)
	u.count++
	u.size += head.Size
	if !fs.ValidPath(strings.ToValidUTF8(name, "x")) || name == "." || u.count > maxHomeEntries || u.size > maxHome ||
		head.Size > maxHomeFile {
		return fmt.Errorf("%q is not allowed there", printable(head.Name))
	}
	mode := fs.FileMode(head.Mode).Perm()
	if err := u.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	switch head.Typeflag {
	case tar.TypeDir:
		u.modes[name] = mode
		return u.root.MkdirAll(name, 0o700)
	case tar.TypeSymlink:
		if to, err := inside("/", name, head.Linkname); err != nil || to != head.Linkname {
			return fmt.Errorf("%q: it leads out of HOME", printable(name))
		}
		return errors.Join(u.clear(name), u.root.Symlink(head.Linkname, name))
	case tar.TypeReg:
		return u.file(name, mode, head.ModTime, in)
	}
	return fmt.Errorf("%q is neither a file nor a directory", printable(name))
}

// clear removes an existing file with this name, so that unpacking can make the file anew.
func (u *unpacker) clear(name string) error {
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (u *unpacker) file(name string, mode fs.FileMode, at time.Time, in io.Reader) error {
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return errors.Join(err, f.Chmod(mode), f.Close(), u.root.Chtimes(name, at, at))
}

// finish sets the modes of directories. It runs last, because a mode may forbid writing into a
// directory.
func (u *unpacker) finish() error {
	names := make([]string, 0, len(u.modes))
	for name := range u.modes {
		names = append(names, name)
	}
	// subdirectories come before their parent directories
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	for _, name := range names {
		if err := u.root.Chmod(name, u.modes[name]); err != nil {
			return err
		}
	}
	return nil
}
