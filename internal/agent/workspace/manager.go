package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/host"
)

// Manager makes workspaces below one directory. Several processes may share it;
// its methods may be called at the same time.
type Manager struct {
	// Debounce is how old what is known of a remote repository may be before it
	// is fetched again. Local repositories are always looked at, and so is a
	// remote one when a ref or commit is asked for that is not known yet.
	Debounce time.Duration
	// PrepareTimeout bounds one Prepare, and SalvageTimeout one Salvage.
	PrepareTimeout, SalvageTimeout time.Duration
	// MaxSalvage bounds a bundle, a patch, and each new file in it, in bytes.
	MaxSalvage int64
	// KeepHome keeps HOME with what is salvaged.
	KeepHome bool
	// Users gives each workspace a user of its own, which needs root; nil for that
	// of this process.
	Users Users
	// Keeper is the user whose the base clones are, and as whom root's repositories are
	// read; nil for that of this process. It belongs to nobody else, and Users never
	// lends it.
	Keeper *host.User
	// Retake takes back the user of a workspace whose owner died, as Users lends one,
	// while the work in it is salvaged. The error is CodeConflict if another run has
	// that user now. With nil nobody is asked.
	Retake func(ctx context.Context, user host.User, id string) (free func(context.Context) error, err error)
	// Limits bound what a helper may use, as they bound the command.
	Limits process.Limits
	// Hidden and Readable are what a helper that reads what jobs can write does not see
	// of this machine, and what it sees all the same, as the command: where both are one
	// user, a file that is exchanged for a link leads it to no more than the job itself.
	Hidden, Readable []string
	// Quota bounds each workspace, while it is made as well; see [Workspace.Watch].
	Quota Quota
	// Credentials finds what proves to a server who asks for a repository whose URL
	// holds nothing of the kind; nil for nothing.
	Credentials Credentials
	// MaxFetch bounds what one fetch may write, in bytes; 0 for no bound.
	MaxFetch int64
	// CryptKey is the file of the git-crypt key with which checkouts are unlocked;
	// empty for none.
	CryptKey string
	// KeepWork and KeepBases are how long what was salvaged from dead workspaces and
	// bases that nobody uses stay; 0 for ever.
	KeepWork, KeepBases time.Duration
	// Now is the clock of Debounce, and of what is kept.
	Now func() time.Time

	dir  string
	git  git
	self host.Process

	patience time.Duration

	times times
	mu    sync.Mutex
	live  map[string]*Workspace // made by this Manager and not removed yet, by their directories
}

// Open uses dir, an absolute path or one below the working directory, and makes
// it if need be, for this user's eyes only. It is an error if another user could put
// another directory in its place. That git is missing shows in Prepare.
func Open(dir string) (*Manager, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = firm(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open workspaces: %w", err)
	}
	m := &Manager{
		Debounce: 30 * time.Second, PrepareTimeout: 10 * time.Minute, SalvageTimeout: 10 * time.Minute,
		MaxSalvage: 64 << 20, MaxFetch: 64 << 30, Now: time.Now,
		KeepHome: true, KeepWork: 7 * 24 * time.Hour, KeepBases: 30 * 24 * time.Hour,
		dir: dir, live: make(map[string]*Workspace), patience: patience,
	}
	for _, sub := range []string{"", "base", "jobs", "kept", "scratch", "nohome"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open workspaces: %w", err)
		}
	}
	for _, sub := range []string{"base", "kept", "scratch"} { // the others may be passed by the users of workspaces
		if err := os.Chmod(filepath.Join(dir, sub), 0o700); err != nil { //nolint:gosec // a directory is entered
			return nil, fmt.Errorf("open workspaces: %w", err)
		}
	}
	m.git = git{home: filepath.Join(dir, "nohome")}
	if bin, err := exec.LookPath("git"); err == nil {
		if m.git.bin, err = filepath.Abs(bin); err != nil {
			return nil, fmt.Errorf("open workspaces: %w", err)
		}
	}
	m.self, err = host.Self()
	if err != nil && !errors.Is(err, host.ErrUnsupported) {
		return nil, fmt.Errorf("open workspaces: %w", err)
	}
	return m, nil
}

// Spec says what a workspace is to hold.
type Spec struct {
	// ID names the workspace, as a run's id does: letters, digits, _, - and dot.
	ID string
	// Place names its directory, in the same letters; ID unless given. Workspaces that
	// follow each other may have the same: programs remember where they were. Another
	// that has it is waited for, for a moment; then the directory is named by ID.
	Place string
	// Repo is the repository; empty for an empty directory without git.
	Repo string
	// Ref is the branch, tag or commit; empty for the source's HEAD.
	Ref string
	// Commit is the whole name of the commit to check out, if it is decided; Ref
	// then only names the branch it is checked out on.
	Commit string
	// Allow judges the repository by where it leads, before anything is read of it: a
	// path without links, or a URL. nil allows any.
	Allow func(repo string) error
	// Unfinished says that [Manager.Restore] follows: until it has ended there is nothing
	// of a run in the workspace, and whoever finds it abandoned keeps nothing of it.
	Unfinished bool
	// Foreign says that somebody else has named Repo than whom this process belongs to:
	// as a path it leads through no symbolic link.
	Foreign bool
}

// source is where a workspace comes from, as far as that is allowed, with what opens it.
func (m *Manager) source(s Spec) (source, error) {
	src, err := s.check()
	if err != nil || src.url == "" {
		return src, err
	}
	if s.Allow != nil {
		if err := s.Allow(src.url); err != nil {
			return source{}, err
		}
	}
	if m.Credentials != nil && strings.HasPrefix(src.url, "https://") && src.user+src.password == "" {
		src.user, src.password, _, err = m.Credentials(src.url)
	}
	return src, err
}

func (s Spec) check() (source, error) {
	if err := checkID(s.ID); err != nil {
		return source{}, err
	}
	if s.Place != "" {
		if err := checkID(s.Place); err != nil {
			return source{}, err
		}
	}
	if err := CheckRef(s.Ref); err != nil {
		return source{}, err
	}
	if s.Commit != "" && !isObject(s.Commit) {
		return source{}, invalid("commit %q: the whole name of a commit has 40 or 64 hexadecimal digits", s.Commit)
	}
	if s.Repo == "" {
		return source{}, nil
	}
	return parseSource(s.Repo)
}

// Workspace is a place for one job.
type Workspace struct {
	ID string
	// Dir is the checkout, Home and Tmp are beside it.
	Dir, Home, Tmp string
	// Repo is the repository without credentials, Ref what was asked for.
	Repo, Ref string
	// Branch is what is checked out, empty for a detached HEAD.
	Branch string
	// Commit is what was checked out.
	Commit string
	// DirtySource says that Repo is a local directory with changes that are not
	// committed. They are not part of the workspace.
	DirtySource bool
	// User is who is to work in it; nil for the user of this process.
	User *host.User
	// Local tells that Repo is a path on this machine.
	Local bool
	// Notes say what the repository has that the workspace has not.
	Notes []string

	m       *Manager
	root    string   // the directory with all that is its
	lock    *os.File // root, flocked while its owner lives
	made    time.Time
	used    Usage                       // when it was last counted
	free    func(context.Context) error // gives the user back
	key     string                      // of the base
	objects string                      // of the base
	shallow []byte                      // where the history of a shallow base ends
	noted   [sha256.Size]byte           // of the files as they were handed over

	gitconfig [sha256.Size]byte // of the .gitconfig in Home

	unfinished bool // it is not restored yet
}

// notes is where it is noted how a workspace was handed over, for its user to read.
func (w *Workspace) notes() string { return filepath.Join(w.root, "notes") }

// Prepare makes a workspace. Errors of the caller's are a [belay.Error] with
// CodeInvalid (what cannot be a repository, ref or id), CodeNotFound (nothing
// there, no such ref, no commit yet), CodeForbidden (a repository that may not be read),
// CodeConflict (the id is in use), CodePayloadTooLarge (the repository is more than a
// workspace or a helper may take); CodeUnavailable means that git or the repository
// cannot be reached, or not within PrepareTimeout.
func (m *Manager) Prepare(ctx context.Context, spec Spec) (*Workspace, error) {
	src, err := m.source(spec)
	if err != nil {
		return nil, err
	}
	w, err := m.place(ctx, spec, src)
	if err != nil {
		return nil, err
	}
	if err := m.furnished(ctx, w, spec, src); err != nil {
		return nil, errors.Join(err, w.Remove(context.WithoutCancel(ctx)))
	}
	return w, nil
}

// furnished puts into a claimed workspace all that it is to have, within the time and
// the space that it may take.
func (m *Manager) furnished(ctx context.Context, w *Workspace, spec Spec, src source) error {
	late := &belay.Error{
		Code: belay.CodeUnavailable, Message: fmt.Sprintf("workspace %s was not made within %s", w.ID,
			m.PrepareTimeout),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.PrepareTimeout, late)
	defer cancel()
	if err := m.lend(ctx, w); err != nil {
		return err
	}
	err := w.watched(ctx, func(ctx context.Context) error { return m.fill(ctx, w, spec, src) })
	if err != nil {
		return err
	}
	if err := m.sign(w.root, w); err != nil {
		return fmt.Errorf("make workspace %s: %w", w.ID, err)
	}
	return nil
}

// owner is what owner.json holds. With a Commit the workspace was finished, and can
// be salvaged by whoever finds it.
type owner struct {
	Process host.Process `json:"process"`
	ID      string       `json:"id"`
	Repo    string       `json:"repo,omitempty"`
	Base    string       `json:"base,omitempty"`
	Made    time.Time    `json:"made"`
	User    *host.User   `json:"user,omitempty"`
	Commit  string       `json:"commit,omitempty"`
	Branch  string       `json:"branch,omitempty"`
	Shallow []byte       `json:"shallow,omitempty"`
	// Home is the sum of the .gitconfig in HOME.
	Home []byte `json:"home,omitempty"`
}

// sign writes down whose a workspace is, and what.
func (m *Manager) sign(root string, w *Workspace) error {
	o := owner{
		Process: m.self, ID: w.ID, Repo: w.Repo, Base: w.key, Made: w.made, User: w.User, Commit: w.Commit,
		Branch: w.Branch, Shallow: w.shallow,
		Home: w.gitconfig[:],
	}
	if w.unfinished {
		o.Commit = ""
	}
	b, err := json.MarshalIndent(&o, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(root, "owner.json"), append(b, '\n'))
}

func (m *Manager) furnish(fresh string, w *Workspace, config []byte) error {
	for _, sub := range []string{"checkout", "home", "tmp"} {
		if err := os.Mkdir(filepath.Join(fresh, sub), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(fresh, "home", ".gitconfig"), config, 0o600); err != nil {
		return err
	}
	w.gitconfig = sha256.Sum256(config)
	if err := m.sign(fresh, w); err != nil {
		return err
	}
	return os.Rename(fresh, w.root)
}

// lockedDir makes a directory that is flocked from the start, but for a moment
// in which somebody's sweep can take it; then another is made.
func (m *Manager) lockedDir(parent, prefix string) (string, *os.File, error) {
	for {
		dir, err := os.MkdirTemp(filepath.Join(m.dir, parent), prefix)
		if err != nil {
			return "", nil, err
		}
		lock, err := tryLock(dir)
		if err == nil {
			if _, err = os.Lstat(dir); err == nil {
				return dir, lock, nil
			}
			_ = lock.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			return "", nil, err
		}
	}
}

// tryLock takes the lock on what path names, without waiting: the error is
// EWOULDBLOCK if somebody else holds it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// writeFile replaces a file as a whole.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
