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
	// Debounce is the time after a fetch of a remote repository during which Prepare uses the base
	// without another fetch. Prepare fetches again within that time if it does not find the
	// requested ref or commit. It reads a local repository on every call.
	Debounce time.Duration
	// PrepareTimeout limits one call of Prepare, and SalvageTimeout one call of Salvage.
	PrepareTimeout, SalvageTimeout time.Duration
	// MaxSalvage is the maximum size, in bytes, of the bundle, of the patch, and of each new file
	// in the patch.
	MaxSalvage int64
	// KeepHome makes Salvage save HOME too.
	KeepHome bool
	// Users gives each workspace its own user, which needs root. If Users is nil, every workspace
	// has the user of this process.
	Users Users
	// Keeper is the user who owns the bases (cached clones) and who reads repositories of root; nil
	// means the user of this process. No other program may run as this user, and Users must never
	// give this user to a workspace.
	Keeper *host.User
	// Retake reserves the user of a workspace whose owner died, for the time in which this process
	// salvages the workspace. Its error has CodeConflict if another run uses that user. If Retake is
	// nil, no user is reserved.
	Retake func(ctx context.Context, user host.User, id string) (free func(context.Context) error, err error)
	// Limits are the resource limits of each helper process; the command of a job has the same
	// limits.
	Limits process.Limits
	// Hidden lists paths that are hidden from a helper that reads files of a job. Secrets lists files
	// that are hidden from it even if they are replaced. Readable lists paths below Hidden that the
	// helper may still read. These lists also apply to the command of the job. So the command gains
	// nothing by replacing a file by a symbolic link, even if the helper has the same user: the helper
	// can read only files that the command itself can read.
	Hidden, Secrets, Readable []string
	// Quota limits each workspace, even while Prepare makes the workspace; see [Workspace.Watch].
	Quota Quota
	// Credentials finds the user name and password for a repository whose URL has none. If
	// Credentials is nil, git gets no login.
	Credentials Credentials
	// MaxFetch is the maximum number of bytes that one fetch may write; 0 for no limit.
	MaxFetch int64
	// CryptKey is the path of the git-crypt key that decrypts checkouts; empty for none.
	CryptKey string
	// KeepWork is how long work that was saved from workspaces of dead processes is kept, and
	// KeepBases how long an unused base (cached clone) is kept; 0 for ever.
	KeepWork, KeepBases time.Duration
	// Now is the clock for Debounce, KeepWork and KeepBases.
	Now func() time.Time

	dir  string
	git  git
	self host.Process

	placeTimeout time.Duration

	times times
	mu    sync.Mutex
	live  map[string]*Workspace // workspaces that this Manager made and has not removed, by directory name
	// failed has, for each dead workspace whose changes could not be saved, the time of the first
	// failure, by directory name.
	failed map[string]time.Time
}

// Open returns a Manager for dir, an absolute path or a path below the working directory. If dir is
// missing, Open makes it, accessible to this user alone. Open fails if another user could replace
// dir by another directory. It does not fail if git is missing; in that case Prepare fails.
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
		dir: dir, live: make(map[string]*Workspace), failed: make(map[string]time.Time), placeTimeout: placeTimeout,
	}
	for _, sub := range []string{"", "base", "jobs", "kept", "scratch", "nohome"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open workspaces: %w", err)
		}
	}
	// Close these directories to other users: to reach its workspace, the user of a workspace needs
	// to pass through dir and jobs only.
	for _, sub := range []string{"base", "kept", "scratch"} {
		if err := os.Chmod(filepath.Join(dir, sub), 0o700); err != nil { //nolint:gosec // a directory needs the x bit
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
	// ID names the workspace. It consists of letters, digits, _, - and dots, like the id of a run.
	ID string
	// Place names the directory of the workspace, in the same characters as ID; empty means ID.
	// Consecutive workspaces may have the same Place, because programs remember the path in which
	// they ran. If another workspace still uses the Place, Prepare waits for up to five seconds and
	// then names the directory by ID.
	Place string
	// Repo is the repository; empty for an empty directory without git.
	Repo string
	// Ref is the branch, tag or commit; empty for the source's HEAD.
	Ref string
	// Commit is the full hash of the commit to check out, if the caller knows the commit; Ref then
	// only names the branch to check out.
	Commit string
	// Allow decides whether a repository may be used, before anything is read from the repository.
	// It gets the real location, a path without symbolic links or a URL. If Allow is nil, every
	// location is allowed.
	Allow func(repo string) error
	// Unfinished says that the caller will call [Manager.Restore]. If the owner dies before Restore
	// has ended, Sweep salvages nothing from the workspace, because the workspace does not contain
	// the complete work of a run.
	Unfinished bool
	// Foreign says that a person other than the user of this process named Repo. A path in Repo may
	// then not lead through a symbolic link.
	Foreign bool
}

// source returns the source that spec names, with its credentials. It returns an error if
// Spec.Allow refuses that source.
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

// Workspace has the directories in which one job works.
type Workspace struct {
	ID string
	// Dir is the checkout. Home and Tmp are directories for the HOME and TMPDIR of the command,
	// outside the checkout.
	Dir, Home, Tmp string
	// Repo is the repository without credentials, Ref the requested ref.
	Repo, Ref string
	// Branch is the branch that was checked out; empty for a detached HEAD.
	Branch string
	// Commit is the commit that was checked out.
	Commit string
	// DirtySource says that Repo is a local directory with uncommitted changes, which are not part
	// of the workspace.
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
	used    Usage                       // the disk usage at the last count
	free    func(context.Context) error // returns the user to the pool
	key     string                      // the name of the base
	objects string                      // the objects directory of the base
	shallow []byte                      // the commits at which the history of a shallow base ends
	noted   [sha256.Size]byte           // checksum of the index at the end of Prepare

	gitconfig [sha256.Size]byte // checksum of the .gitconfig that Prepare wrote to Home

	unfinished bool // the caller will call Restore, or Restore has not ended yet
}

// notes returns the directory that records the state of the workspace at the end of Prepare. The
// workspace's user may read that directory.
func (w *Workspace) notes() string { return filepath.Join(w.root, "notes") }

// Prepare makes a workspace. If the caller caused an error, the error is a [belay.Error]:
// CodeInvalid (the repository, ref or id is not valid), CodeNotFound (the repository or ref does
// not exist, or the repository has no commit), CodeForbidden (the repository may not be read),
// CodeConflict (another workspace has the id) or CodePayloadTooLarge (the repository exceeds the
// limits of a workspace or a helper). CodeUnavailable means that git is missing, that the
// repository cannot be reached, or that Prepare took longer than PrepareTimeout.
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

// fillInTime makes the checkout of a new workspace within PrepareTimeout and within the quota.
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

// owner is the content of owner.json. Commit is empty until Prepare has completed the workspace. A
// process may salvage a workspace whose owner died only if Commit is set.
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
	// Home is the checksum of the .gitconfig that Prepare wrote to HOME.
	Home []byte `json:"home,omitempty"`
}

// sign writes the owner.json of a workspace: which process owns the workspace, and from which
// commit it was made.
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

// lockedDir makes a directory and locks it with flock. If the sweep of another process removes the
// directory before it is locked, lockedDir makes another directory.
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

// tryLock flocks the file or directory at path without waiting. The error is EWOULDBLOCK if another
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
