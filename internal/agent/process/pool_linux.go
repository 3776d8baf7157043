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

// Pool gives users of a range to runs, one to each: what belongs to one run no
// other run can touch, and whatever a run has started can be found by its user.
//
// Its journal is a directory with a file for each user, which names the run and is
// locked while that has it. The kernel lets go of the lock when the process dies;
// what the file then still says tells the next taker that there may be processes
// to kill. All processes of a machine that use one range share one directory.
type Pool struct {
	dir   string
	users Range
	self  host.Process

	mu   sync.Mutex
	next uint32 // where the search begins, so that a user rests before it is used again
}

// slot is the file of one user, locked.
type slot struct {
	mu   sync.Mutex
	file *os.File // nil once the user is given back
}

// OpenPool uses the users of a range, with the journal in dir, which is made if need
// be. It is an error if this process is not root, or if somebody else has one of
// these users.
func OpenPool(dir string, users Range) (*Pool, error) {
	if err := users.validate(); err != nil {
		return nil, fmt.Errorf("open the pool of users: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("open the pool of users %s: only root can run commands as somebody else", users)
	}
	if name, uid, ok := named(users); ok {
		return nil, fmt.Errorf("open the pool of users %s: %d is %s; give a range that nobody has", users, uid, name)
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

// named finds a user of the range that the machine knows by name.
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

// Users is the range.
func (p *Pool) Users() Range { return p.users }

// Take gives a run a user that nobody else has and of whom no process is left. The
// error is [ErrNoUser] when there is none.
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
		// A dead run may have left work that is salvaged as its user: that is the last to
		// be given to another.
		file, err := p.claim(ctx, uid, run, i < p.users.Count)
		if err == nil {
			p.mu.Lock()
			p.next = (from + i + 1) % p.users.Count // beyond those whom others hold, too
			p.mu.Unlock()
			return &Seat{User: host.User{UID: uid, GID: uid}, pool: p, slot: &slot{file: file}}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, errOfTheDead) {
			why = errors.Join(why, err)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("take a user for run %s: %w", run, context.Cause(ctx))
		}
	}
	return nil, fmt.Errorf("take a user for run %s: %w", run, errors.Join(fmt.Errorf("%w: %s", ErrNoUser, p.users),
		why))
}

// holder is what the file of a user says.
type holder struct {
	Run     string       `json:"run"`
	Process host.Process `json:"process"`
	Since   time.Time    `json:"since"`
}

// errOfTheDead means that a user is still noted for a run that is dead.
var errOfTheDead = errors.New("the user of a dead run")

// claim locks a user's file and writes into it whose it is. One that nobody has had
// since a run died is spared if spare says so.
func (p *Pool) claim(ctx context.Context, uid uint32, run string, spare bool) (*os.File, error) {
	file, was, err := p.lock(uid)
	if err != nil {
		return nil, err
	}
	if was.Run != "" && spare {
		return nil, errors.Join(errOfTheDead, file.Close())
	}
	if was.Run != "" {
		err = killUser(ctx, uid)
	} else if left := processesOf(uid); len(left) > 0 {
		err = fmt.Errorf("user %d has process %d, which is none of ours", uid, left[0].PID)
	}
	if err == nil {
		err = inscribe(file, &holder{Run: run, Process: p.self, Since: time.Now().UTC()})
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// lock opens a user's file for us alone.
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
		was.Run = "unknown" // cut off while it was written
	}
	return file, was, nil
}

// inscribe replaces what a user's file says; nil for nobody.
func inscribe(file *os.File, h *holder) error {
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

// Free kills what the user still runs and gives the user back. If something
// survives, the error wraps [ErrSurvived] and the user stays taken until this
// process ends. It may be repeated.
func (s *Seat) Free(ctx context.Context) error {
	s.slot.mu.Lock()
	defer s.slot.mu.Unlock()
	if s.slot.file == nil {
		return nil
	}
	if err := killUser(ctx, s.User.UID); err != nil {
		return fmt.Errorf("free user %d: %w", s.User.UID, err)
	}
	err := inscribe(s.slot.file, nil)
	err = errors.Join(err, s.slot.file.Close())
	s.slot.file = nil
	if err != nil {
		return fmt.Errorf("free user %d: %w", s.User.UID, err)
	}
	return nil
}

// List tells which users are taken.
func (p *Pool) List() ([]Taken, error) {
	var list []Taken
	err := p.each(func(uid uint32, path string) error {
		raw, err := os.ReadFile(path)
		var h holder
		if err != nil || json.Unmarshal(raw, &h) != nil || h.Run == "" {
			return nil //nolint:nilerr // nobody has it, or it just changes hands
		}
		list = append(list, Taken{UID: uid, Run: h.Run, At: h.Since, Left: h.Process.State(p.self) == host.Dead})
		return nil
	})
	return list, err
}

// Sweep kills what runs of dead processes have left. Their users stay noted for them: the
// work that they have left is salvaged as these, and until then others are given out
// first.
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
			return nil // somebody has it
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

// killUser kills every process of a user until a look finds none.
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

// usersAtWork lists the users of all processes.
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

// processesOf lists the processes that run as a user. The dead that wait for their
// parent are none.
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

// userOf is the real user of a process.
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
