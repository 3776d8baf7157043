package registry

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// signalSuffix is the end of the name of each signal file.
const signalSuffix = ".preempt"

// signalPath returns the path of the signal file of a workflow. A hash of the name keeps apart the
// names of one process that differ only in the characters that are replaced or cut off; the process
// makes the path unique, so that a signal to an earlier workflow of the same name never reaches this
// one.
func (r *Registry) signalPath(name string, owner Process) string {
	safe := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '_'
	}, clip(name, 60))
	hash := sha256.Sum256([]byte(name))
	return filepath.Join(r.path, signalsName, fmt.Sprintf("%s-%x-%d-%d%s", safe, hash[:4], owner.PID, owner.StartNS,
		signalSuffix))
}

// signalFile returns the name of a signal file in the directory signals. It returns false for every
// other path, because the state file may come from another program: a path elsewhere could be any
// file of this user. Only the last two elements of the path count, since the data directory may
// have another path in another container.
func signalFile(path string) (name string, ok bool) {
	dir, name := filepath.Split(path)
	ok = filepath.Base(dir) == signalsName && strings.HasSuffix(name, signalSuffix) && len(name) > len(signalSuffix) &&
		len(name) <= 255 && !strings.ContainsRune(name, 0) && filepath.Clean(path) == path
	return name, ok
}

// checkSignalPath refuses a signal path outside the directory signals.
func (r *Registry) checkSignalPath(path string) error {
	if _, ok := signalFile(path); ok && (filepath.Dir(path) == filepath.Join(r.path, signalsName)) {
		return nil
	}
	return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf("the signal path %q is not a file %s/%s/NAME%s",
		path, r.path, signalsName, signalSuffix)}
}

// signals opens the directory of the signal files. ok is false if there is no such directory.
func (c *change) signals() (d folder, ok bool, err error) {
	d, err = c.dir.sub(signalsName, false)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return folder{}, false, nil
	case err != nil:
		return folder{}, false, err
	}
	return d, true, nil
}

// signalled reports whether the signal file of a workflow exists.
func (c *change) signalled(w *Workflow) (bool, error) {
	name, ok := signalFile(w.PreemptSignalPath)
	if !ok {
		return false, nil
	}
	d, ok, err := c.signals()
	if err != nil || !ok {
		return false, err
	}
	defer d.close() //nolint:errcheck // it was opened to look for a file
	return d.regular(name), nil
}

// requestPreempt creates the signal file of a workflow. It returns false if the file was there
// already, or if the workflow has no signal path that may be used.
func (c *change) requestPreempt(w *Workflow) (sent bool, err error) {
	name, ok := signalFile(w.PreemptSignalPath)
	if !ok {
		return false, nil
	}
	d, err := c.dir.sub(signalsName, true)
	if err != nil {
		return false, err
	}
	defer d.close() //nolint:errcheck // a signal does not survive a power cut, as its receiver does not
	if d.regular(name) {
		return false, nil
	}
	switch err := d.remove(name); { // it may be a link
	case isDirectory(err):
		return false, nil
	case err != nil:
		return false, err
	}
	f, err := d.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// clearSignal removes the signal file of a workflow.
func (c *change) clearSignal(w *Workflow) error {
	name, ok := signalFile(w.PreemptSignalPath)
	if !ok {
		return nil
	}
	d, ok, err := c.signals()
	if err != nil || !ok {
		return err
	}
	defer d.close() //nolint:errcheck // it was opened to remove a file
	if err := d.remove(name); !isDirectory(err) {
		return err
	}
	return nil
}

// isDirectory reports whether a file could not be removed because it is a directory, which is no
// signal.
func isDirectory(err error) bool { return errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) }

// withdraw removes the signals of a swap that has ended: workflows of other recipes need not yield
// any more.
func (c *change) withdraw(recipe string) error {
	var all error
	for i := range c.doc.Workflows {
		if w := &c.doc.Workflows[i]; w.Recipe != recipe {
			all = errors.Join(all, c.clearSignal(w))
		}
	}
	return all
}
