package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/belaydev/belay"
)

// keepOrder has a keeper find a commit in a base, and fetch before if need be. The
// descriptors are lines to what answers for the source; without any it is on another
// machine, and reached from here.
type keepOrder struct {
	Dir string
	// URL, User and Password are those of the source.
	URL, User, Password string
	// Authorities are certificates to believe in; none for those of the system.
	Authorities []byte
	// Ref and Commit are what to find, as in Spec.
	Ref, Commit string
	// Head and Detached are where the source's HEAD was when it was fetched last.
	Head, Detached string
	// Try to find it in what there is, and Fetch if that is not so.
	Try, Fetch bool
	// Compact is all that is to be done.
	Compact bool
}

// found is what a keeper has found.
type found struct {
	Commit string `json:"commit"`
	Branch []byte `json:"branch"` // without refs/heads/; none for a detached HEAD
	// Refs are those of the base as a clone of the source would have them packed, and
	// Shallow where its history ends.
	Refs    []byte `json:"refs"`
	Shallow []byte `json:"shallow"`
	// Fetched tells that there was a fetch, and Head and Detached what it found.
	Fetched  bool   `json:"fetched"`
	Head     []byte `json:"head"`
	Detached string `json:"detached"`
	// Packs is how many the base has.
	Packs int `json:"packs"`
}

// clone is a base in the hands of its keeper.
type clone struct {
	g     *git
	dir   string
	src   source
	lines []*os.File
	state state
	fresh bool // fetched by this keeper
}

func (h *helper) keep(ctx context.Context, o *keepOrder) (*answer, error) {
	c := &clone{
		g: &h.git, dir: o.Dir, src: source{
			url: o.URL, user: o.User, password: o.Password,
		}, lines: h.files, state: state{Head: o.Head, Detached: o.Detached},
	}
	if len(o.Authorities) > 0 {
		h.git.authorities = filepath.Join(h.Scratch, "authorities")
		if err := writeFile(h.git.authorities, o.Authorities); err != nil {
			return nil, err
		}
	}
	if o.Compact {
		return nil, c.compact(ctx)
	}
	t, err := c.bring(ctx, o)
	if err != nil {
		return nil, err
	}
	f := &found{Commit: t.commit, Branch: []byte(t.branch), Fetched: c.fresh, Head: []byte(c.state.Head),
		Detached: c.state.Detached, Packs: c.packs()}
	if f.Refs, err = c.refs(ctx); err != nil {
		return nil, err
	}
	if f.Shallow, err = readRegular(filepath.Join(c.dir, "shallow"), maxShallow); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &answer{Found: f}, nil
}

// bring finds what is asked for, in what there is or after a fetch.
func (c *clone) bring(ctx context.Context, o *keepOrder) (target, error) {
	spec := Spec{Ref: o.Ref, Commit: o.Commit}
	if o.Try {
		if t, err := c.find(ctx, spec); err == nil || !o.Fetch || !isNotFound(err) {
			return t, err
		}
	}
	c.unjam()
	if err := c.fetch(ctx); err != nil {
		return target{}, err
	}
	return c.resolve(ctx, spec)
}

// unjam removes the locks and halves that a killed git has left. Whoever sent us holds
// the lock on the base, so no living git has them.
func (c *clone) unjam() {
	_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
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

// fetch brings the base to what the source has. What fails in it is an error that
// another base might not have.
func (c *clone) fetch(ctx context.Context) error {
	next, format, err := c.look(ctx)
	if err != nil {
		return c.unreachable(err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "HEAD")); err != nil {
		if _, err := c.g.run(ctx, command{args: []string{"init", "--quiet", "--bare", "--template=",
			"--object-format=" + format, c.dir}}); err != nil {
			return spoilt{err}
		}
	}
	refs := []string{"+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"}
	if next.Detached != "" {
		refs = append(refs, "+HEAD:refs/belay/head")
	}
	if err := c.take(ctx, append([]string{"--prune"}, fetching...), refs...); err != nil {
		return spoilt{c.unreachable(err)}
	}
	c.state, c.fresh = next, true
	return nil
}

// fetching is how a base is fetched.
var fetching = []string{"--quiet", "--no-tags", "--update-shallow", "--no-write-fetch-head", "--no-auto-maintenance",
	"--no-recurse-submodules"}

func (c *clone) take(ctx context.Context, options []string, refs ...string) error {
	_, err := c.ask(ctx, command{dir: c.dir, args: append([]string{"fetch"}, options...)}, refs...)
	return err
}

// ask calls a git that talks with the source, over a line if there are any.
func (c *clone) ask(ctx context.Context, with command, refs ...string) ([]byte, error) {
	url := c.src.url
	with.remote = &c.src
	if len(c.lines) > 0 {
		with.line, c.lines = c.lines[0], c.lines[1:]
		defer with.line.Close()
		if _, err := with.line.WriteString(hello); err != nil {
			return nil, &gitError{command: with.args[0], err: err, text: "there is no answer for the source"}
		}
		url = lineURL
	}
	with.args = append(append(with.args, "--end-of-options", url), refs...)
	return c.g.run(ctx, with)
}

// look asks the source for its HEAD, and for the format of its object names.
func (c *clone) look(ctx context.Context) (state, string, error) {
	out, err := c.ask(ctx, command{args: []string{"ls-remote", "--quiet", "--symref"}})
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
		return state{}, "", fmt.Errorf("%w in %s yet", errEmpty, c.src)
	}
	if s.Head == "" {
		s.Detached = commit
	}
	return s, format, nil
}

// unreachable says what an error of a fetch means to the caller.
func (c *clone) unreachable(err error) error {
	var failed *gitError
	switch {
	case errors.Is(err, errEmpty):
		return &belay.Error{
			Code: belay.CodeNotFound, Message: fmt.Sprintf("repository %s has no commit yet", c.src), Err: errEmpty,
		}
	case errors.As(err, &failed):
		return &belay.Error{
			Code: belay.CodeUnavailable, Message: fmt.Sprintf("repository %s cannot be fetched", c.src), Err: err,
		}
	}
	return err
}

// maxPacks is how many packs a base may have before the small ones become one.
const maxPacks = 16

func (c *clone) packs() int {
	packs, _ := filepath.Glob(filepath.Join(c.dir, "objects", "pack", "*.pack"))
	return len(packs)
}

// compact keeps the base from getting a pack more with every fetch. Nothing is lost by
// it, neither what no ref leads to any more nor what failed here.
func (c *clone) compact(ctx context.Context) error {
	_, err := c.g.run(ctx, command{dir: c.dir, args: []string{"repack", "--quiet", "--geometric=2", "-d"}})
	return err
}

// maxBaseRefs bounds the list of the refs of a base, in bytes.
const maxBaseRefs = 32 << 20

// refs are those that a clone of the source would have, packed.
func (c *clone) refs(ctx context.Context) ([]byte, error) {
	out, err := c.g.run(ctx, command{dir: c.dir, limit: maxBaseRefs, args: []string{
		"for-each-ref", "--format=%(objectname) %(*objectname) %(refname)", "refs/heads/", "refs/tags/",
	}})
	if err != nil {
		return nil, err
	}
	var packed strings.Builder
	packed.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("git for-each-ref: %q", line)
		}
		if branch, ok := strings.CutPrefix(f[2], "refs/heads/"); ok {
			f[2] = "refs/remotes/origin/" + branch
		}
		fmt.Fprintf(&packed, "%s %s\n", f[0], f[2])
		if f[1] != "" {
			fmt.Fprintf(&packed, "^%s\n", f[1])
		}
	}
	return []byte(packed.String()), nil
}
