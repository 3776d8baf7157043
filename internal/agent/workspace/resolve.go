package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belaydev/belay"
)

// target is the commit to check out, and its branch.
type target struct {
	commit string
	branch string // without refs/heads/; "" for a detached HEAD
}

// resolve finds the commit of spec in a base (a cached clone) that was just fetched.
func (c *clone) resolve(ctx context.Context, spec Spec) (target, error) {
	t, err := c.find(ctx, spec)
	if err == nil || !isNotFound(err) {
		return t, err
	}
	// A fetch does not get a commit that no branch and no tag leads to. resolve fetches such a
	// commit by its name.
	if want := cmp.Or(spec.Commit, spec.Ref); isObject(want) && c.take(ctx, fetching, "+"+want+":refs/belay/commit/"+
		want) == nil {
		return c.find(ctx, spec)
	}
	return target{}, err
}

func isNotFound(err error) bool {
	var e *belay.Error
	return errors.As(err, &e) && e.Code == belay.CodeNotFound
}

func (c *clone) find(ctx context.Context, spec Spec) (target, error) {
	if spec.Commit != "" {
		if !c.has(ctx, spec.Commit) {
			return target{}, notFound("no commit %s in %s", spec.Commit, c.src)
		}
		return target{commit: spec.Commit, branch: c.branchFor(ctx, spec.Ref)}, nil
	}
	if spec.Ref == "" || spec.Ref == "HEAD" {
		return c.head(ctx)
	}
	names := []string{spec.Ref}
	if !strings.HasPrefix(spec.Ref, "refs/") {
		names = []string{"refs/heads/" + spec.Ref, "refs/tags/" + spec.Ref}
	}
	for _, name := range names {
		t, err := c.peel(ctx, name)
		if isNotFound(err) {
			continue
		}
		if branch, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			t.branch = branch
		}
		return t, err
	}
	if hex := strings.ToLower(spec.Ref); isHex(hex) && len(hex) >= 4 && len(hex) <= 64 {
		if commit, err := c.commit(ctx, hex); err == nil {
			return target{commit: commit}, nil
		}
	}
	return target{}, notFound("no branch, tag or commit %s in %s", spec.Ref, c.src)
}

// head returns the source's HEAD at the last fetch.
func (c *clone) head(ctx context.Context) (target, error) {
	if c.state.Detached != "" {
		return target{commit: c.state.Detached}, nil
	}
	branch, ok := strings.CutPrefix(c.state.Head, "refs/heads/")
	if ok {
		t, err := c.peel(ctx, c.state.Head)
		if t.branch = branch; !isNotFound(err) {
			return t, err
		}
	}
	return target{}, notFound("the HEAD of %s leads to no commit; name a branch, tag or commit", c.src)
}

// branchFor returns the branch to check out for ref; "" for a detached HEAD. If ref does not exist
// any more and does not look like a commit, branchFor assumes that ref was a branch.
func (c *clone) branchFor(ctx context.Context, ref string) string {
	if ref == "" || ref == "HEAD" {
		return strings.TrimPrefix(c.state.Head, "refs/heads/")
	}
	branch, full := strings.CutPrefix(ref, "refs/heads/")
	switch {
	case full, c.exists(ctx, "refs/heads/"+ref):
		return branch
	case strings.HasPrefix(ref, "refs/"), c.exists(ctx, "refs/tags/"+ref):
		return ""
	case isHex(strings.ToLower(ref)) && len(ref) >= 4:
		return ""
	}
	return branch
}

// peel returns the commit to which a ref leads. If the ref exists but leads to no commit, peel
// returns an error: either the base is damaged, or the ref leads to another kind of object.
func (c *clone) peel(ctx context.Context, ref string) (target, error) {
	commit, err := c.commit(ctx, ref)
	if err == nil {
		return target{commit: commit}, nil
	}
	if !c.exists(ctx, ref) {
		return target{}, notFound("no %s in %s", ref, c.src)
	}
	kind, kerr := c.g.run(ctx, command{dir: c.dir, args: []string{"cat-file", "-t", "--end-of-options", ref + "^{}"}})
	if kerr != nil {
		return target{}, fmt.Errorf("read %s in the base of %s: %w", ref, c.src, kerr)
	}
	return target{}, invalid("%s in %s is a %s and not a commit", ref, c.src, strings.TrimSpace(string(kind)))
}

func (c *clone) commit(ctx context.Context, name string) (string, error) {
	out, err := c.g.run(ctx, command{
		dir: c.dir, args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}"},
	})
	return strings.TrimSpace(string(out)), err
}

func (c *clone) exists(ctx context.Context, ref string) bool {
	_, err := c.g.run(ctx, command{dir: c.dir, args: []string{"show-ref", "--verify", "--quiet", "--", ref}})
	return err == nil
}

func (c *clone) has(ctx context.Context, commit string) bool {
	_, err := c.g.run(ctx, command{dir: c.dir, args: []string{"cat-file", "-e", commit + "^{commit}"}})
	return err == nil
}
