package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// readOrder has a local source read, as whoever owns it. The first descriptor is its
// directory, the second its git directory if Inside, the others are lines to keepers.
type readOrder struct {
	Path         string
	Inside, Bare bool
	// Status says that somebody wants to know of changes that are not committed.
	Status bool
}

// reading is what a reader has seen.
type reading struct {
	// Dirty says that there are changes that are not committed.
	Dirty bool `json:"dirty,omitempty"`
	// Said is what the gits that answered keepers have complained of.
	Said string `json:"said,omitempty"`
}

// reader reads a source.
type reader struct {
	*readOrder
	g    *git
	dir  string // the directory, by its descriptor
	git  string // where upload-pack is at work
	name string // how it calls the repository from there
	home string

	mu   sync.Mutex
	said tail
}

func (h *helper) read(ctx context.Context, o *readOrder) (*answer, error) {
	r := &reader{readOrder: o, g: &h.git, dir: byDescriptor(h.files[0]), home: h.Scratch}
	r.git, r.name = r.dir, "."
	lines := h.files[1:]
	switch {
	case o.Inside:
		r.git, lines = byDescriptor(h.files[1]), h.files[2:]
	case !o.Bare:
		r.name = ".git" // a file, or a link, that leads to it
	}
	for i, line := range lines {
		var err error
		if lines[i], err = idle(line); err != nil {
			return nil, err
		}
	}
	if err := r.look(); err != nil {
		return nil, err
	}
	if err := r.trust(); err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	var dirty bool
	if o.Status && !o.Bare {
		all.Go(func() { dirty = r.status(ctx) })
	}
	for _, line := range lines {
		all.Go(func() { r.answer(ctx, line) })
	}
	all.Wait()
	return &answer{Read: &reading{Dirty: dirty, Said: r.said.text(nil)}}, nil
}

// byDescriptor is a path to what a descriptor is open for.
func byDescriptor(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// look makes sure that the files on which all depends can be read, and are files: git
// would wait for whoever writes into a pipe.
func (r *reader) look() error {
	if r.name != "." {
		return nil
	}
	for _, name := range []string{"HEAD", "config", "packed-refs", "shallow", "objects/info/alternates"} {
		f, err := os.OpenFile(filepath.Join(r.git, name), os.O_RDONLY|unix.O_NONBLOCK, 0)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
				"repository %s: user %d, as whom it is read, may not read its %s; let others read it (chmod -R "+
					"o+rX), or give it to a user who is not root",
				r.Path, os.Getuid(), name)}
		case err != nil:
			continue // which git may not mind
		}
		info, err := f.Stat()
		_ = f.Close()
		if err == nil && !info.Mode().IsRegular() {
			return &belay.Error{
				Code: belay.CodeInvalid, Message: fmt.Sprintf("repository %s: its %s is not a regular file", r.Path,
					name),
			}
		}
	}
	return nil
}

// idle is a line that is waited at without a thread for each: where threads are those of
// C, a dozen of them take more address space than a helper has.
func idle(line *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(line.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(line.Close(), unix.SetNonblock(fd, true)); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "line"), nil
}

// answer lets a keeper that begins to speak on a line talk with upload-pack.
func (r *reader) answer(ctx context.Context, line *os.File) {
	defer line.Close()
	if _, err := io.ReadFull(line, make([]byte, len(hello))); err != nil {
		return // it has nothing to ask
	}
	_ = unix.SetNonblock(int(line.Fd()), false) // as git expects it
	cmd := exec.CommandContext(ctx, r.g.bin, "upload-pack", "--strict", r.name)
	cmd.Dir = r.git
	cmd.Env = append(r.g.environment(command{}), "GIT_PROTOCOL=version=2", "GIT_CONFIG_GLOBAL="+r.trusted())
	said := &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = line, line, said
	cmd.SysProcAttr = ownGroup()
	runtime.LockOSThread() // the signal at our death follows the thread that started the process
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, _ = r.said.Write(append(said.buf, '\n'))
	}
}

func (r *reader) trusted() string { return filepath.Join(r.home, "trusted") }

// trust lets git read this one repository, whomever it belongs to: it was asked for,
// and is read with the rights of its owner, or of somebody who has fewer.
func (r *reader) trust() error {
	var text strings.Builder
	// of which the last is where it is at work
	for _, path := range []string{r.Path, filepath.Join(r.Path, ".git"), "."} {
		fmt.Fprintf(&text, "[safe]\n\tdirectory = %s\n", quote(path))
	}
	return writeFile(r.trusted(), []byte(text.String()))
}

// status asks for changes that are not committed. No answer is no; there is none where
// the way to the repository is closed to its reader, since git goes there by its path.
func (r *reader) status(ctx context.Context) bool {
	out, err := r.g.run(ctx, command{
		at: r.dir, dir: ".git", tree: ".", limit: 1 << 16, args: []string{
			"status", "--porcelain", "-z", "--ignore-submodules=all",
		},
	})
	return len(out) > 0 || errors.Is(err, errLimit)
}
