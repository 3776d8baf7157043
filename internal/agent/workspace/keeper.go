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

// keepOrder is an order for a keeper (the helper process that fetches): find a commit in a base (a
// cached clone), and fetch if necessary. The descriptors that come with the order are lines, sockets
// to the process that answers for the source. Without descriptors the keeper connects to the source
// over the network.
type keepOrder struct {
	Dir string
	// URL is the source's URL; User and Password are the login for this URL.
	URL, User, Password string
	// Authorities are trusted certificates in PEM form; nil for the system's certificates.
	Authorities []byte
	// Ref and Commit name the commit to find, as in Spec.
	Ref, Commit string
	// Head and Detached are the source's HEAD at the last fetch.
	Head, Detached string
	// If Try is true, the keeper (the helper that fetches) first looks for the commit in the
	// present base. If Fetch is true, the keeper fetches when it has not found the commit in that
	// base.
	Try, Fetch bool
	// If Compact is true, the helper does not fetch: it only merges the packs of the base.
	Compact bool
}

// found is the result of a keeper (the helper process that fetches).
type found struct {
	Commit string `json:"commit"`
	Branch []byte `json:"branch"` // without refs/heads/; empty for a detached HEAD
	// Refs are the packed refs that a clone of the source would have. Shallow lists the commits at
	// which the history of a shallow source ends.
	Refs    []byte `json:"refs"`
	Shallow []byte `json:"shallow"`
	// Fetched says that the helper has fetched. Head and Detached have the source's HEAD only if
	// Fetched is true.
	Fetched  bool   `json:"fetched"`
	Head     []byte `json:"head"`
	Detached string `json:"detached"`
	// Packs is the number of packs in the base.
	Packs int `json:"packs"`
}

// clone is the state of a keeper (the helper process that fetches): the base that it works on, and
// the source.
type clone struct {
	g     *git
	dir   string
	src   source
	lines []*os.File
	state state
	fresh bool // whether this helper has fetched
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
	t, err := c.findOrFetch(ctx, o)
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

// findOrFetch finds the commit of an order, in the present base or after a fetch.
func (c *clone) findOrFetch(ctx context.Context, o *keepOrder) (target, error) {
	spec := Spec{Ref: o.Ref, Commit: o.Commit}
	if o.Try {
		if t, err := c.find(ctx, spec); err == nil || !o.Fetch || !isNotFound(err) {
			return t, err
		}
	}
	c.removeStaleLocks()
	if err := c.fetch(ctx); err != nil {
		return target{}, err
	}
	return c.resolve(ctx, spec)
}

// removeStaleLocks removes lock files and temporary files that a killed git has left in the base
// (the cached clone). The process that started this keeper (the helper that fetches) has locked the
// base, so no running git uses these files.
func (c *clone) removeStaleLocks() {
	_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // git reports a file that remains
		}
		if name := d.Name(); strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_") {
			_ = os.Remove(path)
		}
		return nil
	})
}

// errEmpty means that the source has no commit.
var errEmpty = errors.New("no commit")

// fetch updates the base from the source. An error that may come from a damaged base has the type
// spoilt.
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

// fetching lists the options of every git fetch into a base.
var fetching = []string{"--quiet", "--no-tags", "--update-shallow", "--no-write-fetch-head", "--no-auto-maintenance",
	"--no-recurse-submodules"}

func (c *clone) take(ctx context.Context, options []string, refs ...string) error {
	_, err := c.ask(ctx, command{dir: c.dir, args: append([]string{"fetch"}, options...)}, refs...)
	return err
}

// ask runs a git command that connects to the source. The command uses the next line (a socket to
// the process that answers for the source). If no line is left, it connects over the network.
func (c *clone) ask(ctx context.Context, with command, refs ...string) ([]byte, error) {
	url := c.src.url
	with.remote = &c.src
	if len(c.lines) > 0 {
		with.line, c.lines = c.lines[0], c.lines[1:]
		defer with.line.Close()
		if _, err := with.line.WriteString(hello); err != nil {
			return nil, &gitError{command: with.args[0], err: err, text: "the line to the source is closed"}
		}
		url = lineURL
	}
	with.args = append(append(with.args, "--end-of-options", url), refs...)
	return c.g.run(ctx, with)
}

// look asks the source for its HEAD and for the hash algorithm of its objects.
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

// unreachable converts an error of a fetch to the error that Prepare returns.
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

// maxPacks is the number of packs of a base above which the helper merges small packs.
const maxPacks = 16

func (c *clone) packs() int {
	packs, _ := filepath.Glob(filepath.Join(c.dir, "objects", "pack", "*.pack"))
	return len(packs)
}

// compact merges small packs of the base (the cached clone), because every fetch adds a pack. It
// deletes no object, not even an unreachable object. After an error the base is unchanged.
func (c *clone) compact(ctx context.Context) error {
	_, err := c.g.run(ctx, command{dir: c.dir, args: []string{"repack", "--quiet", "--geometric=2", "-d"}})
	return err
}

// maxBaseRefs is the maximum size of the list of a base's refs, in bytes.
const maxBaseRefs = 32 << 20

// refs returns the refs that a clone of the source would have, in the format of git's packed-refs
// file.
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
