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

	"github.com/belaydev/belay"
)

// base is the warm clone of one repository, and the lock on it.
type base struct {
	m     *Manager
	src   source
	dir   string
	lock  *os.File
	state state
	fresh bool // made or fetched under this lock
}

// state is what the base's own file says; a base without it was never finished.
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

const stateFile = "belay.json"

// base is that of src, without the lock.
func (m *Manager) base(src source) *base {
	return &base{m: m, src: src, dir: filepath.Join(m.dir, "base", src.key())}
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
// after a fetch; in a new base if this one is damaged.
func (b *base) locate(ctx context.Context, spec Spec, damaged bool) (target, error) {
	if !damaged && b.load() && b.current(ctx, spec) {
		if t, err := b.find(ctx, spec); err == nil {
			return t, nil
		}
	}
	if err := b.obtain(ctx); err != nil {
		return target{}, err
	}
	defer b.unlock()
	bring := func() error { return b.update(ctx, spec) }
	if damaged {
		bring = func() error { return b.rebuild(ctx) }
	}
	if err := bring(); err != nil {
		return target{}, err
	}
	return b.resolve(ctx, spec)
}

// current tells whether the base need not be fetched for spec.
func (b *base) current(ctx context.Context, spec Spec) bool {
	if spec.Commit != "" && b.has(ctx, spec.Commit) {
		return true
	}
	age := b.m.Now().Sub(b.state.Fetched)
	return !b.src.local && age >= 0 && age < b.m.Debounce
}

// update brings the base to where spec can be found in it, unless that is known.
func (b *base) update(ctx context.Context, spec Spec) error {
	if !b.load() {
		return b.rebuild(ctx)
	}
	b.unjam()
	if b.current(ctx, spec) {
		return nil
	}
	return b.refresh(ctx)
}

// refresh fetches. What the base cannot take in a new one can.
func (b *base) refresh(ctx context.Context) error {
	err := b.fetch(ctx, b.dir)
	if err == nil {
		b.fresh = true
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	return b.rebuild(ctx)
}

// rebuild makes the base anew and only then replaces what is there.
func (b *base) rebuild(ctx context.Context) error {
	if err := b.clear(".new-"); err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(b.dir), filepath.Base(b.dir)+".new-")
	if err != nil {
		return fmt.Errorf("make the base of %s: %w", b.src, err)
	}
	if err := b.fetch(ctx, next); err != nil {
		return errors.Join(err, removeTree(next))
	}
	release, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	old := fmt.Sprintf("%s.old-%d", b.dir, os.Getpid())
	if err := os.Rename(b.dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace the base of %s: %w", b.src, err)
	}
	if err := os.Rename(next, b.dir); err != nil {
		return fmt.Errorf("replace the base of %s: %w", b.src, err)
	}
	b.fresh = true
	return b.clear(".old-")
}

// clear removes bases that were on their way in or out when somebody died.
func (b *base) clear(infix string) error {
	left, err := filepath.Glob(b.dir + infix + "*")
	for _, dir := range left {
		err = errors.Join(err, removeTree(dir))
	}
	return err
}

func (b *base) load() bool {
	raw, err := os.ReadFile(filepath.Join(b.dir, stateFile))
	return err == nil && json.Unmarshal(raw, &b.state) == nil && !b.state.Fetched.IsZero()
}

// unjam removes the locks and halves that a killed git has left. We hold the lock
// on the base, so no living git has them.
func (b *base) unjam() {
	_ = filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // what is in the way shows when git runs
		}
		if name := d.Name(); strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_") {
			_ = os.Remove(path)
		}
		return nil
	})
}

// errEmpty means that the source holds nothing that could be checked out.
var errEmpty = errors.New("no commit")

// fetch brings dir, an empty directory or a base, to what the source has.
func (b *base) fetch(ctx context.Context, dir string) error {
	next, format, err := b.look(ctx)
	if err != nil {
		return b.unreachable(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		if _, err := b.m.git.run(ctx, command{args: []string{"init", "--quiet", "--bare", "--template=", "--object-format=" + format, dir}}); err != nil {
			return err
		}
	}
	args := []string{
		"fetch", "--quiet", "--prune", "--no-tags", "--update-shallow", "--no-write-fetch-head", "--no-auto-maintenance",
		"--no-recurse-submodules", "--end-of-options", b.src.url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*",
	}
	if next.Detached != "" {
		args = append(args, "+HEAD:refs/belay/head")
	}
	if _, err := b.m.git.run(ctx, command{dir: dir, remote: &b.src, args: args}); err != nil {
		return b.unreachable(err)
	}
	b.compact(ctx, dir)
	next.Repo, next.Fetched = b.src.url, b.m.Now()
	raw, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, stateFile), raw); err != nil {
		return fmt.Errorf("fetch %s: %w", b.src, err)
	}
	b.state = next
	return nil
}

// maxPacks is how many packs a base may have before the small ones become one.
const maxPacks = 16

// compact keeps the base from getting a pack more with every fetch. Nothing is
// lost by it, neither what no ref leads to any more nor what failed here.
func (b *base) compact(ctx context.Context, dir string) {
	packs, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
	if err != nil || len(packs) <= maxPacks {
		return
	}
	if release, err := b.use(ctx); err == nil {
		defer release()
		_, _ = b.m.git.run(ctx, command{dir: dir, args: []string{"repack", "--quiet", "--geometric=2", "-d"}})
	}
}

// look asks the source for its HEAD, and for the format of its object names.
func (b *base) look(ctx context.Context) (state, string, error) {
	out, err := b.m.git.run(ctx, command{remote: &b.src, args: []string{"ls-remote", "--quiet", "--symref", "--end-of-options", b.src.url}})
	if err != nil {
		return state{}, "", err
	}
	var s state
	format, commit, holds := "sha1", "", false
	for line := range strings.SplitSeq(string(out), "\n") {
		value, name, ok := strings.Cut(line, "\t")
		if target, is := strings.CutPrefix(value, "ref: "); ok && is {
			if branch, is := strings.CutPrefix(target, "refs/heads/"); is && name == "HEAD" && checkBranch(branch) {
				s.Head = target
			}
			continue
		}
		if !ok || !isObject(value) {
			continue
		}
		holds = true
		if len(value) == 64 {
			format = "sha256"
		}
		if name == "HEAD" {
			commit = value
		}
	}
	if !holds {
		return state{}, "", fmt.Errorf("%w in %s yet", errEmpty, b.src)
	}
	if s.Head == "" {
		s.Detached = commit
	}
	return s, format, nil
}

// unreachable says what an error of a fetch means to the caller.
func (b *base) unreachable(err error) error {
	var failed *gitError
	switch {
	case errors.Is(err, errEmpty):
		return &belay.Error{Code: belay.CodeNotFound, Message: fmt.Sprintf("repository %s has no commit yet", b.src), Err: errEmpty}
	case errors.As(err, &failed):
		if !b.src.local && !refused(failed.text) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return &belay.Error{Code: belay.CodeUnavailable, Message: fmt.Sprintf("repository %s cannot be fetched", b.src), Err: err}
	}
	return err
}
