package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/belaydev/belay"
)

// errOpen is what stands in an error about a mode.
var errOpen = errors.New("others have it open")

// Read reads a file of at most so many bytes. The error is a [belay.Error] with
// CodeForbidden if others can change or read it, and shows nothing of what is in it.
func Read(path string, most int64) ([]byte, error) {
	f, err := open(path)
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
		err = fmt.Errorf("%s is larger than %d bytes, which no secret is", path, most)
	}
	return text, err
}

// Check refuses a file that [Read] would, and says what is to be known of one that it
// takes; "" for nothing.
func Check(path string) (warning string, err error) {
	f, err := open(path)
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

// refuse says what is wrong with a mode, and what to do.
func refuse(f *os.File, mode fs.FileMode, who string) error {
	return &belay.Error{Code: belay.CodeForbidden, Err: errOpen, Message: fmt.Sprintf(
		"%s has mode %#o: %s; close it with: chmod 600 %s", f.Name(), mode, who, f.Name())}
}
