package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// Pool gives each run a system user from a range, and no other run has that user at the same time.
// So no other run can access the run's files and processes, and the pool can find every process of
// the run by its user.
//
// The pool's journal is a directory with a file for each user. The file names the run and stays
// locked while the run has the user. When the locking process dies, the kernel releases the lock
// and the content remains in the file; so the next process that takes this user first kills the
// user's processes. All processes of a machine that use one range share one directory.
type Pool struct {
	dir   string
	users Range
	self  host.Process

	mu   sync.Mutex
	next uint32 // index at which the next search begins, so that a freed user is reused as late as possible
}

// slot is the locked file of one user.
type slot struct {
	mu   sync.Mutex
	file *os.File // nil after the user was freed
}

// OpenPool opens the pool of the users in a range. It keeps the journal in dir, and makes dir if
// necessary. It returns an error if this process is not root, or if /etc/passwd names a user of the
// range.
func OpenPool(dir string, users Range) (*Pool, error) {
	if err := users.validate(); err != nil {
		return nil, fmt.Errorf("open the pool of users: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("open the pool of users %s: only root can run commands as another user", users)
	}
	if name, uid, ok := named(users); ok {
		return nil, fmt.Errorf("open the pool of users %s: %d is %s; give a range that no user of this machine has",
			users, uid, name)
	}
	self, err := host.Self()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("open the pool of users %s: %w", users, err)
	}
	return &Pool{dir: dir, users: users, self: self}, nil
}

// named returns a user of the range that /etc/passwd names.
func named(users Range) (name string, uid uint32, found bool) {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return "", 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 3 {
			continue
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && users.has(id) {
			return fields[0], uint32(id), true
		}
	}
	return "", 0, false
}

// Users returns the range of the pool's users.
func (p *Pool) Users() Range { return p.users }

// Take reserves for a run a user that no other run has and that has no processes. It returns
// [ErrNoUser] if no user is free.
func (p *Pool) Take(ctx context.Context, run string) (*Seat, error) {
	if !runID.MatchString(run) {
		return nil, fmt.Errorf("take a user: run id %q", run)
	}
	p.mu.Lock()
	from := p.next
	p.next = (p.next + 1) % p.users.Count
	p.mu.Unlock()
	var why error
	for i := range 2 * p.users.Count {
		uid := p.users.First + (from+i)%p.users.Count
		// The first pass skips the users of dead runs, because the changes of such a run may still
		// have to be saved by a process that runs as the same user.
		file, err := p.claim(ctx, uid, run, i < p.users.Count)
		if err == nil {
			p.mu.Lock()
			// the next call begins after this user, so that it does not try again the users that other
			// processes have reserved
			p.next = (from + i + 1) % p.users.Count
			p.mu.Unlock()
			return &Seat{User: host.User{UID: uid, GID: uid}, pool: p, slot: &slot{file: file}}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, errDeadRun) {
			why = errors.Join(why, err)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("take a user for run %s: %w", run, context.Cause(ctx))
		}
	}
	return nil, fmt.Errorf("take a user for run %s: %w", run, errors.Join(fmt.Errorf("%w: %s", ErrNoUser, p.users),
		why))
}

// holder is the content of a user's file.
type holder struct {
	Run     string       `json:"run"`
	Process host.Process `json:"process"`
	Since   time.Time    `json:"since"`
}

// errDeadRun is the error for a user whose file still names a run whose process is dead.
var errDeadRun = errors.New("the user of a dead run")

// claim locks the file of a user and writes the run into it. If spare is true, claim refuses a user
// whose file still names a dead run.
func (p *Pool) claim(ctx context.Context, uid uint32, run string, spare bool) (*os.File, error) {
	file, was, err := p.lock(uid)
	if err != nil {
		return nil, err
	}
	if was.Run != "" && spare {
		return nil, errors.Join(errDeadRun, file.Close())
	}
	if was.Run != "" {
		err = killUser(ctx, uid)
	} else if left := processesOf(uid); len(left) > 0 {
		err = fmt.Errorf("user %d has process %d, which belay did not start", uid, left[0].PID)
	}
	if err == nil {
		err = writeHolder(file, &holder{Run: run, Process: p.self, Since: time.Now().UTC()})
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// lock opens and locks a user's file for this process alone.
func (p *Pool) lock(uid uint32) (*os.File, holder, error) {
	var was holder
	file, err := os.OpenFile(filepath.Join(p.dir, strconv.FormatUint(uint64(uid), 10)), os.O_RDWR|os.O_CREATE|
		unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, was, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, was, err
	}
	raw, err := io.ReadAll(io.LimitReader(file, 1<<16))
	if err != nil {
		return nil, was, errors.Join(err, file.Close())
	}
	if len(raw) > 0 && json.Unmarshal(raw, &was) != nil {
		was.Run = "unknown" // the writer died while it wrote the file
	}
	return file, was, nil
}

// writeHolder replaces the content of a user's file; nil clears it.
func writeHolder(file *os.File, h *holder) error {
	if err := file.Truncate(0); err != nil || h == nil {
		return err
	}
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(append(raw, '\n'), 0)
	return err
}

// Free kills the user's processes and makes the user available again. If a process survives, the
// error wraps [ErrSurvived] and the user stays reserved until this process ends. A second call does
// nothing.
func (s *Seat) Free(ctx context.Context) error {
	s.slot.mu.Lock()
	defer s.slot.mu.Unlock()
	if s.slot.file == nil {
		return nil
	}
	if err := killUser(ctx, s.User.UID); err != nil {
		return fmt.Errorf("free user %d: %w", s.User.UID, err)
	}
	err := writeHolder(s.slot.file, nil)
	err = errors.Join(err, s.slot.file.Close())
	s.slot.file = nil
	if err != nil {
		return fmt.Errorf("free user %d: %w", s.User.UID, err)
	}
	return nil
}

// List lists the users that are in use.
func (p *Pool) List() ([]Taken, error) {
	var list []Taken
	err := p.each(func(uid uint32, path string) error {
		raw, err := os.ReadFile(path)
		var h holder
		if err != nil || json.Unmarshal(raw, &h) != nil || h.Run == "" {
			return nil //nolint:nilerr // the user is free, or another process is writing its file
		}
		list = append(list, Taken{UID: uid, Run: h.Run, At: h.Since, Left: h.Process.State(p.self) == host.Dead})
		return nil
	})
	return list, err
}

// Sweep kills the processes of runs whose Belay process has died. The pool's files still name these
// runs afterwards, so Take gives out their users last, because a process with the same user may
// still have to save the work of such a run.
func (p *Pool) Sweep(ctx context.Context) error {
	busy := make(map[uint32]bool)
	for _, uid := range usersAtWork() {
		busy[uid] = true
	}
	return p.each(func(uid uint32, _ string) error {
		if !busy[uid] {
			return nil
		}
		file, was, err := p.lock(uid)
		if err != nil {
			return nil // another process has reserved the user
		}
		defer file.Close()
		if was.Run == "" {
			return nil
		}
		if err := killUser(ctx, uid); err != nil {
			return fmt.Errorf("sweep user %d: %w", uid, err)
		}
		return nil
	})
}

func (p *Pool) each(do func(uid uint32, path string) error) error {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("read the pool of users: %w", err)
	}
	for _, e := range entries {
		uid, perr := strconv.ParseUint(e.Name(), 10, 32)
		if perr != nil || !p.users.has(uid) {
			continue
		}
		err = errors.Join(err, do(uint32(uid), filepath.Join(p.dir, e.Name())))
	}
	return err
}

// killUser kills every process of a user until no process of that user is left.
func killUser(ctx context.Context, uid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, sweepMost)
	defer cancel()
	for {
		left := processesOf(uid)
		if len(left) == 0 {
			return nil
		}
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, s := range left {
				_ = s.Signal(sig)
			}
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: process %d of user %d", ErrSurvived, left[0].PID, uid)
		}
	}
}

// usersAtWork lists the user of every process.
func usersAtWork() (uids []uint32) {
	table, err := host.Processes()
	if err != nil {
		return nil
	}
	for _, s := range table {
		if uid, ok := userOf(s.PID); ok {
			uids = append(uids, uid)
		}
	}
	return uids
}

// processesOf lists the processes of a user, without zombies.
func processesOf(uid uint32) (found []host.Status) {
	table, err := host.Processes()
	if err != nil {
		return nil
	}
	for _, s := range table {
		if real, ok := userOf(s.PID); ok && real == uid && !s.Ended() {
			found = append(found, s)
		}
	}
	return found
}

// userOf returns the real user of a process.
func userOf(pid int) (uint32, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			f := strings.Fields(rest)
			if len(f) == 0 {
				return 0, false
			}
			uid, err := strconv.ParseUint(f[0], 10, 32)
			return uint32(uid), err == nil
		}
	}
	return 0, false
}
