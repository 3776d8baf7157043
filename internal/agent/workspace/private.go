package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// private is a git directory of ours, for one purpose and a short time.
type private struct {
	m    *Manager
	dir  string
	lock *os.File
}

// private makes one that reads the objects of others.
func (m *Manager) private(ctx context.Context, w *Workspace, objects ...string) (*private, error) {
	dir, lock, err := m.lockedDir("scratch", "git-")
	if err != nil {
		return nil, fmt.Errorf("make a private git directory: %w", err)
	}
	p := &private{m: m, dir: dir, lock: lock}
	_, err = m.git.run(ctx, command{args: []string{"init", "--quiet", "--bare", "--template=", "--object-format=" + format(w.Commit), dir}})
	if err == nil {
		err = p.borrow(objects...)
	}
	if err == nil {
		err = deepen(dir, w.shallow)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "info"), 0o700)
	}
	if err == nil {
		// Whatever a tree's .gitattributes name, no driver is looked for.
		err = writeFile(filepath.Join(dir, "info", "attributes"), []byte("* -filter !diff !merge\n"))
	}
	if err != nil {
		p.remove()
		return nil, err
	}
	return p, nil
}

// borrow sets whose objects are read beside its own.
func (p *private) borrow(objects ...string) error {
	dir := filepath.Join(p.dir, "objects", "info")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "alternates"), []byte(strings.Join(objects, "\n")+"\n"))
}

func (p *private) remove() {
	if p == nil {
		return
	}
	_ = removeTree(p.dir) // what stays is swept
	_ = p.lock.Close()
}

func (p *private) git(ctx context.Context, c command) ([]byte, error) {
	c.dir = p.dir
	return p.m.git.run(ctx, c)
}

func (p *private) has(ctx context.Context, commit string) bool {
	_, err := p.git(ctx, command{args: []string{"cat-file", "-e", commit + "^{commit}"}})
	return err == nil
}

// tree is the tree of a commit, the empty one without a commit.
func (p *private) tree(ctx context.Context, commit string) (string, error) {
	c := command{args: []string{"rev-parse", "--verify", "--end-of-options", commit + "^{tree}"}}
	if commit == "" {
		c = command{stdin: bytes.NewReader(nil), args: []string{"mktree"}}
	}
	out, err := p.git(ctx, c)
	return strings.TrimSpace(string(out)), err
}

// adopt gives it the HEAD and the branches of a repository.
func (p *private) adopt(ctx context.Context, repo *repository, lost *losses) error {
	if repo.head.commit != "" && !p.has(ctx, repo.head.commit) {
		return fmt.Errorf("HEAD is at %s, which is no commit that can be read", repo.head.commit)
	}
	refs := sortedKeys(repo.branches)
	var ask strings.Builder
	for _, ref := range refs {
		fmt.Fprintln(&ask, repo.branches[ref])
	}
	out, err := p.git(ctx, command{stdin: strings.NewReader(ask.String()), args: []string{"cat-file", "--batch-check=%(objecttype)"}})
	if err != nil {
		return err
	}
	kinds := strings.Split(strings.TrimSpace(string(out)), "\n")
	var updates strings.Builder
	for i, ref := range refs {
		if i >= len(kinds) || kinds[i] != "commit" {
			lost.add("branch %s, which leads to no commit that can be read", strings.TrimPrefix(ref, "refs/heads/"))
			delete(repo.branches, ref)
			continue
		}
		fmt.Fprintf(&updates, "create %s %s\n", ref, repo.branches[ref])
	}
	if _, err := p.git(ctx, command{stdin: strings.NewReader(updates.String()), args: []string{"update-ref", "--stdin"}}); err != nil {
		return err
	}
	if repo.head.ref != "" {
		_, err = p.git(ctx, command{args: []string{"symbolic-ref", "HEAD", repo.head.ref}})
	} else {
		_, err = p.git(ctx, command{args: []string{"update-ref", "--no-deref", "HEAD", repo.head.commit}})
	}
	return err
}

// bundle packs what leads to HEAD, the branches and the state, without what the
// base commit holds. It counts the commits also if the bundle is beyond its limit.
func (p *private) bundle(ctx context.Context, base string, repo *repository) ([]byte, int, error) {
	var tips []string
	if repo.head.commit != "" {
		tips = append(tips, "HEAD")
	}
	for _, ref := range sortedKeys(repo.branches) {
		if repo.branches[ref] != base {
			tips = append(tips, ref)
		}
	}
	var count int
	if len(tips) > 0 {
		out, err := p.git(ctx, command{stdin: lines(tips, "^"+base), args: []string{"rev-list", "--count", "--stdin"}})
		if err != nil {
			return nil, 0, err
		}
		if _, err := fmt.Sscan(string(out), &count); err != nil {
			return nil, 0, fmt.Errorf("git rev-list: %w", err)
		}
	}
	if err := p.writeState(ctx, repo); err != nil {
		return nil, count, err
	}
	out, err := p.git(ctx, command{
		limit: p.m.MaxSalvage, stdin: lines(tips, stateRef, "^"+base), args: []string{"bundle", "create", "--quiet", "-", "--stdin"},
	})
	return out, count, err
}

// unbundle takes a bundle in, checking every object.
func (p *private) unbundle(ctx context.Context, bundle []byte) error {
	file := filepath.Join(p.dir, "salvage.bundle")
	if err := writeFile(file, bundle); err != nil {
		return err
	}
	return fetchBundle(ctx, &p.m.git, p.dir, file)
}

// fetchBundle brings the refs of a bundle in below refs/belay/in/.
func fetchBundle(ctx context.Context, g *git, dir, file string) error {
	_, err := g.run(ctx, command{dir: dir, config: []string{"fetch.fsckObjects=true"}, args: []string{
		"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules",
		"--end-of-options", file, "+refs/*:refs/belay/in/*",
	}})
	if err != nil {
		return err
	}
	// HEAD is in a bundle only if it leads to something new.
	_, err = g.run(ctx, command{dir: dir, config: []string{"fetch.fsckObjects=true"}, args: []string{
		"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules",
		"--end-of-options", file, "+HEAD:refs/belay/in/HEAD",
	}})
	var failed *gitError
	if errors.As(err, &failed) {
		return nil
	}
	return err
}

func lines(first []string, more ...string) *strings.Reader {
	return strings.NewReader(strings.Join(append(slices.Clone(first), more...), "\n") + "\n")
}
