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

// base is the cached clone of one repository: workspaces get their objects from it. The files of the
// clone belong to the keeper (the user of the helper process that fetches), so this process does
// not trust their contents. This process keeps the state of the base in a separate file beside the
// clone.
type base struct {
	m      *Manager
	src    source
	dir    string
	keeper *host.User // the user of the keeper (the helper that fetches); nil for the user of this process
	peer   peer       // the process that answers for the source; nil if the keeper connects to the source
	lock   *os.File
	state  state
}

// state is what this process has recorded about a base (a cached clone). A base without a recorded
// state is incomplete.
type state struct {
	// Repo is the repository, for display.
	Repo string `json:"repo,omitempty"`
	// Head is the branch of the source's HEAD, as a full ref; empty if HEAD was detached or had no
	// commit.
	Head string `json:"head"`
	// Detached is the commit of the source's HEAD if HEAD was detached.
	Detached string    `json:"detached,omitempty"`
	Fetched  time.Time `json:"fetched"`
}

// stateFile is the suffix that turns the path of a base into the path of its state.
const stateFile = ".json"

// base returns the base (the cached clone) of src. It does not lock the base.
func (m *Manager) base(src source) *base {
	return &base{m: m, src: src, dir: filepath.Join(m.dir, "base", src.key()), keeper: m.Keeper}
}

// lockBase waits for the lock that a process needs to make or fetch the base (the cached clone) of
// src.
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

// locate finds the commit that spec names in the base (the cached clone). It fetches first, unless
// the last fetch is recent enough. If damaged is true, it makes a new base. It returns the opened
// directory of the base that has the commit; the caller closes that directory.
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

// consult searches the present base (the cached clone) for the commit of spec. If fetch is true, it
// may fetch first. If the base is not usable, consult returns neither a result nor an error.
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

// load reads the recorded state of the base (the cached clone) and opens its directory. It returns
// nil if the base cannot be used, because it is incomplete or belongs to another user. If this
// process is root and no keeper is configured, helpers run as the user who owns the present base.
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

// owner returns the id of the user who must own the files of the base (the cached clone).
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

// errand returns the task for a keeper (the helper that fetches) of this base (cached clone), with
// the rights and limits of the keeper.
func (b *base) errand(o *keepOrder) errand {
	e := errand{who: "keeper", user: b.keeper, writable: []string{o.Dir}, limits: b.m.Limits, limit: 4 * maxBaseRefs,
		order: order{Keep: o}}
	e.limits.Pids = 0 // without cgroups the limit would apply to all helpers that fetch together
	e.limits.FileSize = b.m.MaxFetch
	return e
}

// ask runs a keeper (the helper that fetches) with the order o, and returns the commit that the
// keeper has found.
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
		// The keeper (the helper that fetches) may have no right to read the file with the
		// certificates, so it gets the contents of the file.
		if file := os.Getenv("SSL_CERT_FILE"); file != "" {
			o.Authorities, _ = os.ReadFile(file)
		}
	}
	t, err := b.m.start(ctx, e)
	if err != nil {
		return nil, err
	}
	closeAll(e.files) // the peer gets an end of file only after every copy of the socket is closed
	e.files = nil
	a, err := t.wait()
	if err != nil {
		return nil, err
	}
	return a.Found, a.Found.check()
}

// check returns an error if the answer of the keeper (the helper that fetches) is not valid. This
// process does not trust the keeper.
func (f *found) check() error {
	branch := func(ref []byte) bool {
		name, ok := strings.CutPrefix(string(ref), "refs/heads/")
		return ok && checkBranch(name)
	}
	switch {
	case f == nil, !isObject(f.Commit), len(f.Branch) > 0 && !checkBranch(string(f.Branch)),
		len(f.Head) > 0 && !branch(f.Head), f.Detached != "" && !isObject(f.Detached), len(f.Shallow) > maxShallow:
		return errors.New("the answer of the keeper is not valid")
	}
	return nil
}

// remember stores the result of a fetch as the recorded state of the base (the cached clone).
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

// compact runs a keeper (the helper that fetches) to merge packs of the base (the cached clone), if
// the base has too many packs. It ignores errors, because the base can also be used with many
// packs.
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

// rebuild makes a new base (cached clone) of the source, and puts it in the place of the present
// base.
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
			err = s.error // this base is new already, so making another base would not help
		}
		return nil, nil, errors.Join(err, dir.Close(), removeTree(next))
	}
	return f, dir, b.clear(".old-")
}

// replace moves a new base (cached clone) to the path of the present base.
func (b *base) replace(ctx context.Context, next string, f *found) error {
	release, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	old := fmt.Sprintf("%s.old-%d", b.dir, os.Getpid())
	for _, step := range []func() error{
		func() error { return os.Remove(b.dir + stateFile) }, // removes the state of the old base
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

// clear removes the directories with infix in their names: ".new-" marks bases (cached clones) that
// a dead process left unfinished, and ".old-" bases that were replaced.
func (b *base) clear(infix string) error {
	left, err := filepath.Glob(b.dir + infix + "*")
	for _, dir := range left {
		err = errors.Join(err, removeTree(dir))
	}
	return err
}
