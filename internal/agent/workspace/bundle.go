package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
)

// unbundle takes a bundle of ours into a git directory that holds the base commit,
// and gives where HEAD and the branches stood. Every object is checked, and that
// none is missing: git itself would take a bundle in on trust.
func unbundle(ctx context.Context, g *git, dir, base string, bundle []byte) (*repository, error) {
	header, pack, ok := bytes.Cut(bundle, []byte("\n\n"))
	if !ok || !bytes.HasPrefix(header, []byte("# v")) {
		return nil, errors.New("it is no git bundle")
	}
	var state string
	for line := range strings.SplitSeq(string(header), "\n") {
		if object, ref, ok := strings.Cut(line, " "); ok && ref == stateRef && isObject(object) {
			state = object
		}
	}
	if state == "" {
		return nil, errors.New("the bundle does not say where HEAD stood")
	}
	if _, err := g.run(ctx, command{dir: dir, stdin: bytes.NewReader(pack), args: []string{"index-pack", "--stdin", "--fix-thin", "--fsck-objects"}}); err != nil {
		return nil, err
	}
	raw, err := g.run(ctx, command{dir: dir, args: []string{"cat-file", "commit", state}})
	if err != nil {
		return nil, err
	}
	repo, err := parseState(string(raw))
	if err != nil {
		return nil, err
	}
	tips := []string{"^" + base}
	if repo.head.commit != "" {
		tips = append(tips, repo.head.commit)
	}
	for _, ref := range sortedKeys(repo.branches) {
		tips = append(tips, repo.branches[ref])
	}
	if _, err := g.run(ctx, command{dir: dir, stdin: lines(tips), args: []string{"rev-list", "--objects", "--quiet", "--stdin"}}); err != nil {
		return nil, fmt.Errorf("not all is there: %w", err)
	}
	return repo, nil
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

// lines is what git reads from --stdin.
func lines(first []string, more ...string) *strings.Reader {
	return strings.NewReader(strings.Join(append(first[:len(first):len(first)], more...), "\n") + "\n")
}
