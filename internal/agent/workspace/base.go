package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// base is the warm clone of one repository, and the lock on it. Its files are the
// keeper's, and nothing that they say is believed here; what is known of it stands
// beside it.
type base struct {
	m      *Manager
	src    source
	dir    string
	keeper *host.User // nil for the user of this process
	peer   peer       // what answers for the source; nil if keepers reach it themselves
	lock   *os.File
	state  state
}

// state is what is known of a base; one without was never finished.
type state struct {
	// Repo is the repository, for people.
	Repo string `json:"repo,omitempty"`
	// Head is the branch that the source's HEAD was on, as a full ref; empty if
	// it was detached or has no commit.
	Head string `json:"head"`
	// Detached is the commit of a detached HEAD.
	Detached string    `json:"detached,omitempty"`
	Fetched  time.Time `json:"fetched"`
}

// stateFile follows the name of a base in the name of the file that tells of it.
const stateFile = ".json"

// base is that of src, without the lock.
func (m *Manager) base(src source) *base {
	return &base{m: m, src: src, dir: filepath.Join(m.dir, "base", src.key()), keeper: m.Keeper}
}

// lockBase waits for the base of src, to fetch or make it.
func (m *Manager) lockBase(ctx context.Context, src source) (*base, error) {
	b := m.base(src)
	if err := b.obtain(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *base) obtain(ctx context.Context) error {
	f, err := waitLock(ctx, b.dir+".lock")
	if err != nil {
		return fmt.Errorf("wait for the base of %s: %w", b.src, err)
	}
	b.lock = f
	return nil
}

func (b *base) unlock() { _ = b.lock.Close() }

// locate finds what spec asks for: in what is known if that is new enough, else
// after a fetch; in a new base if this one is damaged. It gives the directory in which
// it was found, for the caller to close.
func (b *base) locate(ctx context.Context, spec Spec, damaged bool) (*found, *os.File, error) {
	if !damaged {
		if f, dir, err := b.consult(ctx, spec, false); err == nil && f != nil {
			return f, dir, nil
		}
	}
	if err := b.obtain(ctx); err != nil {
		return nil, nil, err
	}
	defer b.unlock()
	if !damaged {
		f, dir, err := b.consult(ctx, spec, true)
		if f != nil || err != nil && (!isSpoilt(err) || ctx.Err() != nil) {
			return f, dir, err
		}
	}
	return b.rebuild(ctx, spec)
}

// consult finds spec in the base that is there, after a fetch if it may fetch and has
// to. It gives nothing, and no error, where there is no such base.
func (b *base) consult(ctx context.Context, spec Spec, fetch bool) (*found, *os.File, error) {
	dir := b.load()
	if dir == nil {
		return nil, nil, nil
	}
	o := b.order(spec)
	age := b.m.Now().Sub(b.state.Fetched)
	o.Try = spec.Commit != "" || !b.src.local && age >= 0 && age < b.m.Debounce
	if o.Fetch = fetch; !o.Try && !o.Fetch {
		return nil, nil, dir.Close()
	}
	f, err := b.ask(ctx, o)
	if err == nil && f.Fetched {
		err = b.remember(f)
		b.compact(ctx, f)
	}
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return f, dir, nil
}

// load reads what is known of the base and opens it; nil if there is none that can be
// used: half made, or another user's. A person who is root and has no keeper uses that
// of whoever made it.
func (b *base) load() *os.File {
	raw, err := readRegular(b.dir+stateFile, 1<<20)
	if err != nil || json.Unmarshal(raw, &b.state) != nil || b.state.Fetched.IsZero() {
		return nil
	}
	dir, err := openDir(b.dir)
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &st) == nil {
		if b.m.Keeper == nil && os.Geteuid() == 0 && st.Uid != 0 {
			b.keeper = &host.User{UID: st.Uid, GID: st.Gid}
		}
		if st.Uid == b.owner() {
			return dir
		}
	}
	_ = dir.Close()
	return nil
}

// owner is whose the files of the base are.
func (b *base) owner() uint32 {
	if b.keeper != nil {
		return b.keeper.UID
	}
	return uint32(os.Geteuid())
}

func (b *base) order(spec Spec) keepOrder {
	return keepOrder{
		Dir: b.dir, URL: b.src.url, User: b.src.user, Password: b.src.password, Ref: spec.Ref, Commit: spec.Commit,
		Head: b.state.Head, Detached: b.state.Detached,
	}
}

// errand is that of a keeper.
func (b *base) errand(o *keepOrder) errand {
	e := errand{who: "keeper", user: b.keeper, writable: []string{o.Dir}, limits: b.m.Limits, limit: 4 * maxBaseRefs,
		order: order{Keep: o}}
	e.limits.Pids = 0 // without cgroups it would count all keepers
	e.limits.FileSize = b.m.MaxFetch
	return e
}

// ask sends out a keeper.
func (b *base) ask(ctx context.Context, o keepOrder) (*found, error) {
	e := b.errand(&o)
	defer func() { closeAll(e.files) }()
	switch {
	case o.Fetch && b.peer != nil:
		for range linesOfKeeper {
			line, err := b.peer.line()
			if err != nil {
				return nil, err
			}
			e.files = append(e.files, line)
		}
	case o.Fetch:
		e.network, e.inherit = true, remoteEnvironment
		// which the keeper may not be able to read, and git knows by another name
		if file := os.Getenv("SSL_CERT_FILE"); file != "" {
			o.Authorities, _ = os.ReadFile(file)
		}
	}
	t, err := b.m.start(ctx, e)
	if err != nil {
		return nil, err
	}
	closeAll(e.files) // so that the other end sees the end of the keeper
	e.files = nil
	a, err := t.wait()
	if err != nil {
		return nil, err
	}
	return a.Found, a.Found.check()
}

// check makes sure that what a keeper has found could be that.
func (f *found) check() error {
	branch := func(ref []byte) bool {
		name, ok := strings.CutPrefix(string(ref), "refs/heads/")
		return ok && checkBranch(name)
	}
	switch {
	case f == nil, !isObject(f.Commit), len(f.Branch) > 0 && !checkBranch(string(f.Branch)),
		len(f.Head) > 0 && !branch(f.Head), f.Detached != "" && !isObject(f.Detached), len(f.Shallow) > maxShallow:
		return errors.New("the keeper has found nothing that makes sense")
	}
	return nil
}

// remember writes down what a fetch has found.
func (b *base) remember(f *found) error {
	b.state = state{Repo: b.src.url, Head: string(f.Head), Detached: f.Detached, Fetched: b.m.Now()}
	raw, err := json.Marshal(b.state)
	if err == nil {
		err = writeFile(b.dir+stateFile, raw)
	}
	if err != nil {
		return fmt.Errorf("fetch %s: %w", b.src, err)
	}
	return nil
}

// compact has the base tidied up if it is time. It is good without.
func (b *base) compact(ctx context.Context, f *found) {
	if f.Packs <= maxPacks {
		return
	}
	release, err := b.use(ctx)
	if err != nil {
		return
	}
	defer release()
	o := b.order(Spec{})
	o.Compact = true
	_, _ = b.m.send(ctx, b.errand(&o))
}

// rebuild makes the base anew and only then replaces what is there.
func (b *base) rebuild(ctx context.Context, spec Spec) (*found, *os.File, error) {
	if err := b.clear(".new-"); err != nil {
		return nil, nil, err
	}
	next, err := os.MkdirTemp(filepath.Dir(b.dir), filepath.Base(b.dir)+".new-")
	if err == nil && b.keeper != nil {
		err = os.Lchown(next, int(b.keeper.UID), int(b.keeper.GID))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make the base of %s: %w", b.src, err)
	}
	dir, err := openDir(next)
	if err != nil {
		return nil, nil, err
	}
	o := b.order(spec)
	o.Dir, o.Fetch = next, true
	f, err := b.ask(ctx, o)
	if err == nil {
		err = b.replace(ctx, next, f)
	}
	if err != nil {
		var s spoilt
		if errors.As(err, &s) {
			err = s.error // and there is no other
		}
		return nil, nil, errors.Join(err, dir.Close(), removeTree(next))
	}
	return f, dir, b.clear(".old-")
}

// replace puts a base that was just made in the place of what is there.
func (b *base) replace(ctx context.Context, next string, f *found) error {
	release, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	old := fmt.Sprintf("%s.old-%d", b.dir, os.Getpid())
	for _, step := range []func() error{
		func() error { return os.Remove(b.dir + stateFile) }, // it is of the old one
		func() error { return os.Rename(b.dir, old) },
	} {
		if err := step(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replace the base of %s: %w", b.src, err)
		}
	}
	if err := os.Rename(next, b.dir); err != nil {
		return fmt.Errorf("replace the base of %s: %w", b.src, err)
	}
	return b.remember(f)
}

// clear removes bases that were on their way in or out when somebody died.
func (b *base) clear(infix string) error {
	left, err := filepath.Glob(b.dir + infix + "*")
	for _, dir := range left {
		err = errors.Join(err, removeTree(dir))
	}
	return err
}
