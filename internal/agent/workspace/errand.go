package workspace

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/host"
)

// errand is a task for a helper (a process of this program that runs as another user), with the
// rights that the helper gets for the task.
type errand struct {
	who  string     // the kind of the helper: reader, keeper or steward
	user *host.User // nil for the user of this process
	// writable lists the directories in which the helper may write, in addition to its scratch
	// directory.
	writable []string
	// hidden, secrets and readable have the same meaning as Hidden, Secrets and Readable in
	// process.Command.
	hidden, secrets, readable []string
	files                     []*os.File
	inherit                   []string
	limits                    process.Limits
	// network gives the helper the network of this machine.
	network bool
	// hostTmp gives the helper the machine's /tmp instead of a private /tmp, because the source, or
	// a directory on the path to the source, may be in the machine's /tmp.
	hostTmp bool
	limit   int64 // maximum size of the helper's answer, in bytes
	order   order
}

// trip is one run of a helper process.
type trip struct {
	who     string
	ctx     context.Context
	tree    *process.Tree
	scratch string
	lock    *os.File
	out     bounded
	said    tail
	end     sync.Once
	// harvest, if set, is called after the helper has succeeded. It moves results out of the scratch
	// directory.
	harvest func() error
}

// start starts a helper process. The caller closes e.files, and calls wait on the returned trip
// (the run of the helper).
func (m *Manager) start(ctx context.Context, e errand) (*trip, error) {
	dir, lock, err := m.lockedDir("scratch", e.who+"-")
	if err != nil {
		return nil, fmt.Errorf("start a %s: %w", e.who, err)
	}
	t := &trip{who: e.who, ctx: ctx, scratch: dir, lock: lock, out: bounded{limit: e.limit, full: func() {}}}
	c, err := m.errandCommand(t, &e)
	if err == nil {
		t.tree, err = process.Start(ctx, c)
	}
	if closed := (*process.StartError)(nil); errors.As(err, &closed) && e.user != nil && m.makePassable() {
		t.tree, err = process.Start(ctx, c)
	}
	if err != nil {
		t.clean()
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("start a %s: %w", e.who, err)
	}
	return t, nil
}

func (m *Manager) errandCommand(t *trip, e *errand) (process.Command, error) {
	if e.user != nil {
		if err := os.Lchown(t.scratch, int(e.user.UID), int(e.user.GID)); err != nil {
			return process.Command{}, err
		}
	}
	e.order.Git, e.order.Scratch, e.order.Files = m.git.bin, t.scratch, len(e.files)
	var in bytes.Buffer
	if err := gob.NewEncoder(&in).Encode(&e.order); err != nil {
		return process.Command{}, err
	}
	c := process.Command{
		ID: fmt.Sprintf("%s-%d", filepath.Base(t.scratch), os.Getpid()), Args: []string{helperName, e.who},
		Helper: true, Dir: t.scratch,
		Inherit: append([]string{"PATH", "TZ"}, e.inherit...), Env: map[string]string{
			"HOME": t.scratch, "TMPDIR": t.scratch, "LC_ALL": "C",
		},
		Stdin: in.Bytes(), Output: t.take, Grace: -1, User: e.user, Limits: e.limits,
		Writable: append([]string{t.scratch}, e.writable...), Hidden: e.hidden, Secrets: e.secrets,
		Readable: e.readable, Files: e.files,
	}
	if !e.hostTmp {
		c.Tmp = t.scratch
	}
	if !e.network {
		c.Network = process.NoNetwork
	}
	return c, nil
}

// makePassable lets other users pass through the directories above the directories of helpers, and
// reports whether it changed anything. This is needed on a machine where the sandbox of a helper
// cannot make its directories visible by mounts.
func (m *Manager) makePassable() (opened bool) {
	for _, sub := range []string{"base", "scratch"} {
		dir := filepath.Join(m.dir, sub)
		if info, err := os.Lstat(dir); err == nil && info.Mode().Perm() == 0o700 {
			// other users can pass through the directory but cannot list it
			if os.Chmod(dir, 0o711) == nil { //nolint:gosec // the job's user must pass through it
				opened = true
			}
		}
	}
	return opened
}

func (t *trip) take(_ context.Context, c process.Chunk) error {
	var err error
	if c.Stream == process.Stdout {
		_, err = t.out.Write(c.Data)
	} else {
		_, err = t.said.Write(c.Data)
	}
	return err
}

func (t *trip) clean() {
	t.end.Do(func() {
		_ = removeTree(t.scratch) // if this fails, Manager.Sweep removes the rest
		_ = t.lock.Close()
	})
}

// wait waits for the end of a helper. It returns the error that the helper reported, or an error
// that says why the helper gave no valid answer.
func (t *trip) wait() (*answer, error) {
	r, err := t.tree.Wait()
	defer t.clean()
	if cause := context.Cause(t.ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, fmt.Errorf("the %s: %w", t.who, err)
	}
	a := &answer{}
	if r.Code != 0 || json.Unmarshal(t.out.buf.Bytes(), a) != nil {
		err = fmt.Errorf("the %s ended with exit code %d: %s", t.who, r.Code, t.said.text(nil))
	} else {
		err = a.Failed.err()
	}
	if err != nil && r.Exceeded != "" {
		err = &belay.Error{Code: belay.CodePayloadTooLarge, Message: r.Exceeded, Err: err}
	}
	if err == nil && t.harvest != nil {
		err = t.harvest()
	}
	return a, err
}

// send starts a helper and waits for its answer.
func (m *Manager) send(ctx context.Context, e errand) (*answer, error) {
	t, err := m.start(ctx, e)
	if err != nil {
		return nil, err
	}
	return t.wait()
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
