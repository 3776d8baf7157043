package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/belaydev/belay"
)

// errOpen is wrapped by every error about the mode of a file.
var errOpen = errors.New("other users have access to the file")

// Read reads a file with a secret; most is the greatest size in bytes. The error is a [belay.Error]
// with CodeForbidden if other users can change or read the file. No error contains a part of the
// file.
func Read(path string, most int64) ([]byte, error) { return read(path, most, 0) }

// ReadDirect is Read, except that it refuses a path whose last part is a symbolic link.
func ReadDirect(path string, most int64) ([]byte, error) {
	text, err := read(path, most, noFollow)
	if info, lerr := os.Lstat(path); err != nil && lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is a symbolic link; name the file to which it leads", path)
	}
	return text, err
}

func read(path string, most int64, flags int) ([]byte, error) {
	f, err := open(path, flags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", path)
	}
	if err == nil {
		_, err = judge(f, info)
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d bytes, too large for a secret", path, most)
	}
	return text, err
}

// Check refuses a file that [Read] would refuse because of its mode. It returns a warning about a
// file that Read accepts although other users can read the file, and "" for every other file.
func Check(path string) (warning string, err error) {
	f, err := open(path, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", path)
	}
	return judge(f, info)
}

// refuse returns an error about the mode of a file, with the command that corrects the mode.
func refuse(f *os.File, mode fs.FileMode, who string) error {
	return &belay.Error{Code: belay.CodeForbidden, Err: errOpen, Message: fmt.Sprintf(
		"%s has mode %#o: %s; close it with: chmod 600 %s", f.Name(), mode, who, f.Name())}
}
