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

// readOrder is the order for a reader, the helper that answers for a local source as the user who
// owns the source. The first descriptor is the directory of the source. If Inside is true, the
// second descriptor is the git directory of the source. All further descriptors are lines, sockets
// to keepers (the helpers that fetch).
type readOrder struct {
	Path         string
	Inside, Bare bool
	// Status says that the reader also looks for uncommitted changes.
	Status bool
}

// reading is the result of a reader.
type reading struct {
	// Dirty says that the source has uncommitted changes.
	Dirty bool `json:"dirty,omitempty"`
	// Said is the error output of git upload-pack.
	Said string `json:"said,omitempty"`
}

// reader is the state of a reader, the helper that answers git for a local source.
type reader struct {
	*readOrder
	g    *git
	dir  string // path of the source's directory, by its descriptor
	git  string // working directory of git upload-pack
	name string // path of the repository relative to the field git
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
		r.name = ".git" // .git is a file or a symbolic link
	}
	for i, line := range lines {
		var err error
		if lines[i], err = nonBlocking(line); err != nil {
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

// byDescriptor returns a path that leads to an open file.
func byDescriptor(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// look checks that the important files of the repository are regular files that can be read. If
// such a file were a named pipe, git would wait for ever to read it.
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
			continue // git may not need the file
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

// nonBlocking duplicates a line (a socket to a keeper) in non-blocking mode. Waiting for data of
// the line then needs no operating system thread. In a program that uses cgo, a dozen waiting
// threads would take more address space than a helper may use.
func nonBlocking(line *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(line.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(line.Close(), unix.SetNonblock(fd, true)); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "line"), nil
}

// answer waits until a keeper (the helper that fetches) sends the message hello on a line (a socket
// from the keeper), and then runs git upload-pack with this socket as its standard input and
// output.
func (r *reader) answer(ctx context.Context, line *os.File) {
	defer line.Close()
	if _, err := io.ReadFull(line, make([]byte, len(hello))); err != nil {
		return // the helper that fetches closed the socket without using it
	}
	_ = unix.SetNonblock(int(line.Fd()), false) // git expects a blocking descriptor
	cmd := exec.CommandContext(ctx, r.g.bin, "upload-pack", "--strict", r.name)
	cmd.Dir = r.git
	cmd.Env = append(r.g.environment(command{}), "GIT_PROTOCOL=version=2", "GIT_CONFIG_GLOBAL="+r.trusted())
	said := &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = line, line, said
	cmd.SysProcAttr = ownGroup()
	runtime.LockOSThread() // the kernel kills git when the thread that started it ends
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, _ = r.said.Write(append(said.buf, '\n'))
	}
}

func (r *reader) trusted() string { return filepath.Join(r.home, "trusted") }

// trust makes git accept this repository even if another user owns it. This is safe, because the
// caller named the repository and this helper has at most the rights of the repository's owner.
func (r *reader) trust() error {
	var text strings.Builder
	// git checks the owner for each of these paths; upload-pack uses the path "."
	for _, path := range []string{r.Path, filepath.Join(r.Path, ".git"), "."} {
		fmt.Fprintf(&text, "[safe]\n\tdirectory = %s\n", quote(path))
	}
	return writeFile(r.trusted(), []byte(text.String()))
}

// status reports whether the source has uncommitted changes; false if git fails. git opens the
// repository by its path, so git fails if this helper may not enter a parent directory.
func (r *reader) status(ctx context.Context) bool {
	out, err := r.g.run(ctx, command{
		at: r.dir, dir: ".git", tree: ".", limit: 1 << 16, args: []string{
			"status", "--porcelain", "-z", "--ignore-submodules=all",
		},
	})
	return len(out) > 0 || errors.Is(err, errLimit)
}
