package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belaydev/belay"
)

// target is what is to be checked out.
type target struct {
	commit string
	branch string // without refs/heads/; "" for a detached HEAD
}

// resolve finds spec in the base, after another fetch if it is not there yet.
func (b *base) resolve(ctx context.Context, spec Spec) (target, error) {
	t, err := b.find(ctx, spec)
	if err == nil || !isNotFound(err) || ctx.Err() != nil {
		return t, err
	}
	if !b.fresh {
		if err := b.refresh(ctx); err != nil {
			return target{}, err
		}
		if t, err = b.find(ctx, spec); err == nil {
			return t, nil
		}
	}
	// A commit that no branch or tag leads to is given out only if it is asked for.
	want := spec.Commit
	if want == "" {
		want = spec.Ref
	}
	if isObject(want) {
		_, ferr := b.m.git.run(ctx, command{dir: b.dir, remote: &b.src, args: []string{
			"fetch", "--quiet", "--no-tags", "--update-shallow", "--no-write-fetch-head", "--no-auto-maintenance",
			"--no-recurse-submodules", "--end-of-options", b.src.url, "+" + want + ":refs/belay/commit/" + want,
		}})
		if ferr == nil {
			return b.find(ctx, spec)
		}
	}
	return target{}, err
}

func isNotFound(err error) bool {
	var e *belay.Error
	return errors.As(err, &e) && e.Code == belay.CodeNotFound
}

func (b *base) find(ctx context.Context, spec Spec) (target, error) {
	if spec.Commit != "" {
		if !b.has(ctx, spec.Commit) {
			return target{}, notFound("no commit %s in %s", spec.Commit, b.src)
		}
		return target{commit: spec.Commit, branch: b.branchFor(ctx, spec.Ref)}, nil
	}
	if spec.Ref == "" || spec.Ref == "HEAD" {
		return b.head(ctx)
	}
	names := []string{spec.Ref}
	if !strings.HasPrefix(spec.Ref, "refs/") {
		names = []string{"refs/heads/" + spec.Ref, "refs/tags/" + spec.Ref}
	}
	for _, name := range names {
		t, err := b.peel(ctx, name)
		if isNotFound(err) {
			continue
		}
		if branch, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			t.branch = branch
		}
		return t, err
	}
	if hex := strings.ToLower(spec.Ref); isHex(hex) && len(hex) >= 4 && len(hex) <= 64 {
		if commit, err := b.commit(ctx, hex); err == nil {
			return target{commit: commit}, nil
		}
	}
	return target{}, notFound("no branch, tag or commit %s in %s", spec.Ref, b.src)
}

// head is what the source's HEAD was at the last fetch.
func (b *base) head(ctx context.Context) (target, error) {
	if b.state.Detached != "" {
		return target{commit: b.state.Detached}, nil
	}
	branch, ok := strings.CutPrefix(b.state.Head, "refs/heads/")
	if ok {
		t, err := b.peel(ctx, b.state.Head)
		if t.branch = branch; !isNotFound(err) {
			return t, err
		}
	}
	return target{}, notFound("the HEAD of %s leads to no commit; name a branch, tag or commit", b.src)
}

// branchFor is the branch on which a given commit is checked out. A name that is
// not known any more was a branch when the commit was decided, unless it looks
// like a commit.
func (b *base) branchFor(ctx context.Context, ref string) string {
	if ref == "" || ref == "HEAD" {
		return strings.TrimPrefix(b.state.Head, "refs/heads/")
	}
	branch, full := strings.CutPrefix(ref, "refs/heads/")
	switch {
	case full, b.exists(ctx, "refs/heads/"+ref):
		return branch
	case strings.HasPrefix(ref, "refs/"), b.exists(ctx, "refs/tags/"+ref):
		return ""
	case isHex(strings.ToLower(ref)) && len(ref) >= 4:
		return ""
	}
	return branch
}

// peel is the commit behind a ref. If the ref exists and there is none, the base
// is damaged or the ref is of something else.
func (b *base) peel(ctx context.Context, ref string) (target, error) {
	commit, err := b.commit(ctx, ref)
	if err == nil {
		return target{commit: commit}, nil
	}
	if !b.exists(ctx, ref) {
		return target{}, notFound("no %s in %s", ref, b.src)
	}
	kind, kerr := b.m.git.run(ctx, command{dir: b.dir, args: []string{"cat-file", "-t", "--end-of-options", ref + "^{}"}})
	if kerr != nil {
		return target{}, fmt.Errorf("read %s in the base of %s: %w", ref, b.src, kerr)
	}
	return target{}, invalid("%s in %s is a %s and not a commit", ref, b.src, strings.TrimSpace(string(kind)))
}

func (b *base) commit(ctx context.Context, name string) (string, error) {
	out, err := b.m.git.run(ctx, command{dir: b.dir, args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}"}})
	return strings.TrimSpace(string(out)), err
}

func (b *base) exists(ctx context.Context, ref string) bool {
	_, err := b.m.git.run(ctx, command{dir: b.dir, args: []string{"show-ref", "--verify", "--quiet", "--", ref}})
	return err == nil
}

func (b *base) has(ctx context.Context, commit string) bool {
	_, err := b.m.git.run(ctx, command{dir: b.dir, args: []string{"cat-file", "-e", commit + "^{commit}"}})
	return err == nil
}
