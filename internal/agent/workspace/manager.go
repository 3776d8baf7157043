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

// Manager makes workspaces below one directory. Several processes may share the directory, and the
// methods are safe for concurrent use.
type Manager struct {
	// Debounce is the age up to which the last fetch of a remote repository is used without another
	// fetch. Prepare always looks at a local repository, and also fetches a remote one when the
	// requested ref or commit is not known yet.
	Debounce time.Duration
	// PrepareTimeout bounds one call of Prepare, SalvageTimeout one call of Salvage.
	PrepareTimeout, SalvageTimeout time.Duration
	// MaxSalvage bounds, each on its own, the bundle, the patch and every new file in the patch, in
	// bytes.
	MaxSalvage int64
	// KeepHome makes Salvage keep HOME as well.
	KeepHome bool
	// Users gives each workspace a user of its own, which needs root; with nil every workspace has
	// the user of this process.
	Users Users
	// Keeper is the user who owns the base clones, and as whom repositories of root are read; nil
	// for the user of this process. No other program runs as this user, and Users never lends it.
	Keeper *host.User
	// Retake reserves, as Users does, the user of a workspace whose owner died, while the work in
	// that workspace is salvaged. The error is CodeConflict if another run has that user now. With
	// nil, no user is reserved.
	Retake func(ctx context.Context, user host.User, id string) (free func(context.Context) error, err error)
	// Limits are the resource limits of each helper, the same as those of the command.
	Limits process.Limits
	// Hidden are paths that a helper must not see if it reads files that jobs can write, and
	// Readable are paths below them that it sees all the same. Both are the lists that apply to the
	// command: where helper and command run as the same user, a file that the command replaces by a
	// link then leads the helper to nothing that the command cannot read itself.
	Hidden, Readable []string
	// Quota bounds each workspace, also while Prepare makes it; see [Workspace.Watch].
	Quota Quota
	// Credentials finds the user name and password for a repository whose URL has none; with nil
	// there are none.
	Credentials Credentials
	// MaxFetch bounds what one fetch may write, in bytes; 0 for no bound.
	MaxFetch int64
	// CryptKey is the path of the git-crypt key that unlocks checkouts; empty for none.
	CryptKey string
	// KeepWork is how long work salvaged from dead workspaces stays, KeepBases how long an unused
	// base stays; 0 for ever.
	KeepWork, KeepBases time.Duration
	// Now is the clock for Debounce, KeepWork and KeepBases.
	Now func() time.Time

	dir  string
	git  git
	self host.Process

	placeTimeout time.Duration

	times times
	mu    sync.Mutex
	live  map[string]*Workspace // by directory: made by this Manager and not removed yet
}

// Open uses dir, an absolute path or one below the working directory, and makes it if it is
// missing, readable by this user alone. Open fails if another user could replace the directory by
// another one. If git is missing, Prepare reports that, not Open.
func Open(dir string) (*Manager, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = secureDir(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open workspaces: %w", err)
	}
	m := &Manager{
		Debounce: 30 * time.Second, PrepareTimeout: 10 * time.Minute, SalvageTimeout: 10 * time.Minute,
		MaxSalvage: 64 << 20, MaxFetch: 64 << 30, Now: time.Now,
		KeepHome: true, KeepWork: 7 * 24 * time.Hour, KeepBases: 30 * 24 * time.Hour,
		dir: dir, live: make(map[string]*Workspace), placeTimeout: placeTimeout,
	}
	for _, sub := range []string{"", "base", "jobs", "kept", "scratch", "nohome"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open workspaces: %w", err)
		}
	}
	// users of workspaces pass through the others
	for _, sub := range []string{"base", "kept", "scratch"} {
		if err := os.Chmod(filepath.Join(dir, sub), 0o700); err != nil { //nolint:gosec // entering a directory needs x
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

// Spec describes the workspace to make.
type Spec struct {
	// ID names the workspace: letters, digits, _, - and dot, as in the id of a run.
	ID string
	// Place names the directory of the workspace, in the same letters as ID; empty means ID.
	// Consecutive workspaces may share a Place, because programs remember the path in which they
	// ran. If another workspace still uses the Place, Prepare waits a moment for it and then names
	// the directory by ID.
	Place string
	// Repo is the repository; empty for an empty directory without git.
	Repo string
	// Ref is the branch, tag or commit; empty for the source's HEAD.
	Ref string
	// Commit is the full hash of the commit to check out, if the caller knows it; Ref then only
	// names the branch on which it is checked out.
	Commit string
	// Allow judges the repository by its real location, a path without symbolic links or a URL,
	// before anything is read from the repository. With nil every location is allowed.
	Allow func(repo string) error
	// Unfinished announces that [Manager.Restore] follows. Until Restore has ended, the workspace
	// contains no work of a run, and a sweep that finds it abandoned salvages nothing.
	Unfinished bool
	// Foreign says that Repo was named by a person other than the user of this process: if Repo is
	// a path, it may not lead through a symbolic link.
	Foreign bool
}

// source returns the allowed source of a workspace, with the credentials for it.
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

// Workspace is the set of directories in which one job works.
type Workspace struct {
	ID string
	// Dir is the checkout; Home and Tmp are beside it.
	Dir, Home, Tmp string
	// Repo is the repository without credentials, Ref the requested ref.
	Repo, Ref string
	// Branch is the branch checked out, empty for a detached HEAD.
	Branch string
	// Commit is the commit checked out.
	Commit string
	// DirtySource says that Repo is a local directory with uncommitted changes. These changes are
	// not part of the workspace.
	DirtySource bool
	// User is the user that works in the workspace; nil for the user of this process.
	User *host.User
	// Local says that Repo is a path on this machine.
	Local bool
	// Notes list parts of the repository that the workspace lacks, such as submodules.
	Notes []string

	m       *Manager
	root    string   // the directory that contains the whole workspace
	lock    *os.File // an open descriptor of root, flocked while the owner lives
	made    time.Time
	used    Usage                       // at the last count
	free    func(context.Context) error // returns the user to the pool
	key     string                      // the name of the base
	objects string                      // the objects directory of the base
	shallow []byte                      // the commits at which the history of a shallow base ends
	noted   [sha256.Size]byte           // checksum of the index as Prepare left it

	gitconfig [sha256.Size]byte // checksum of the .gitconfig in Home

	unfinished bool // Restore has not ended yet
}

// notes is the directory that records how Prepare left the workspace; the workspace's user may read
// it.
func (w *Workspace) notes() string { return filepath.Join(w.root, "notes") }

// Prepare makes a workspace. Errors that the caller caused are a [belay.Error] with CodeInvalid
// (not a valid repository, ref or id), CodeNotFound (no repository there, no such ref, no commit
// yet), CodeForbidden (the repository may not be read), CodeConflict (the id is in use) or
// CodePayloadTooLarge (the repository exceeds the limits of a workspace or a helper).
// CodeUnavailable means that git or the repository cannot be reached, or could not be within
// PrepareTimeout.
func (m *Manager) Prepare(ctx context.Context, spec Spec) (*Workspace, error) {
	src, err := m.source(spec)
	if err != nil {
		return nil, err
	}
	w, err := m.place(ctx, spec, src)
	if err != nil {
		return nil, err
	}
	if err := m.fillInTime(ctx, w, spec, src); err != nil {
		return nil, errors.Join(err, w.Remove(context.WithoutCancel(ctx)))
	}
	return w, nil
}

// fillInTime fills a claimed workspace within PrepareTimeout and within the quota.
func (m *Manager) fillInTime(ctx context.Context, w *Workspace, spec Spec, src source) error {
	late := &belay.Error{
		Code: belay.CodeUnavailable, Message: fmt.Sprintf("workspace %s was not made within %s", w.ID,
			m.PrepareTimeout),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.PrepareTimeout, late)
	defer cancel()
	if err := m.assignUser(ctx, w); err != nil {
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

// owner is the content of owner.json. If Commit is set, the workspace was finished, and the process
// that finds it abandoned can salvage it.
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
	// Home is the checksum of the .gitconfig in HOME.
	Home []byte `json:"home,omitempty"`
}

// sign writes owner.json: the process that owns the workspace, and its contents.
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

func (m *Manager) makeDirs(fresh string, w *Workspace, config []byte) error {
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

// lockedDir makes a directory and flocks it. In the moment between the two, the sweep of another
// process can remove the directory; lockedDir then makes another one.
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

// tryLock flocks the file or directory at path without waiting: the error is EWOULDBLOCK if another
// process has the lock.
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

// writeFile replaces a file atomically.
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
