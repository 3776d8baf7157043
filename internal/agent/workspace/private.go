package workspace

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
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
		attributes := "* -filter !diff !merge\n"
		if m.CryptKey != "" {
			attributes = "* !diff !merge\n" // of filters only ours is known
		}
		err = writeFile(filepath.Join(dir, "info", "attributes"), []byte(attributes))
	}
	if err == nil {
		err = p.crypt()
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
