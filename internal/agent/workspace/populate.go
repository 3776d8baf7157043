package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// workspace is the one of an order, in the hands of a steward: with a Manager whose
// directory is the steward's own, and with its notes for its root.
func (h *helper) workspace(p *place) (*Workspace, error) {
	m := &Manager{MaxSalvage: p.MaxSalvage, Quota: p.Quota, dir: h.Scratch, git: h.git}
	if len(p.Key) > 0 {
		m.CryptKey = filepath.Join(h.Scratch, "key")
		if err := writeFile(m.CryptKey, p.Key); err != nil {
			return nil, err
		}
	}
	w := &Workspace{
		ID: p.ID, Dir: p.Dir, Home: p.Home, Tmp: p.Tmp, Repo: p.Repo, Ref: p.Ref, Branch: p.Branch, Commit: p.Commit, User: p.User,
		m: m, root: p.Notes, objects: p.Objects, shallow: p.Shallow,
	}
	copy(w.noted[:], p.Noted)
	return w, nil
}

func (h *helper) fill(ctx context.Context, o *fillOrder) (*answer, error) {
	w, err := h.workspace(&o.Place)
	if err != nil {
		return nil, err
	}
	if err := h.populate(ctx, w, o); err != nil {
		return nil, err
	}
	if err := w.m.unlock(ctx, w, o.Place.NoKey); err != nil {
		return nil, err
	}
	w.root = filepath.Join(h.Scratch, "notes")
	err = os.Mkdir(w.root, 0o700)
	if err == nil {
		err = w.note()
	}
	return &answer{Noted: w.noted[:]}, err
}

func (h *helper) restore(ctx context.Context, o *restoreOrder) (*answer, error) {
	w, err := h.workspace(&o.Place)
	if err != nil {
		return nil, err
	}
	return nil, w.m.restore(ctx, w, o.Bundle, o.Patch)
}

func (h *helper) salvage(ctx context.Context, o *salvageOrder) (*answer, error) {
	w, err := h.workspace(&o.Place)
	if err != nil {
		return nil, err
	}
	s, err := w.m.salvage(ctx, w)
	return &answer{Salvage: &s}, err
}

// populate makes the checkout out of the objects and the refs.
func (h *helper) populate(ctx context.Context, w *Workspace, o *fillOrder) error {
	t := target{commit: w.Commit, branch: w.Branch}
	dir := filepath.Join(w.Dir, ".git")
	if _, err := h.git.run(ctx, command{args: []string{
		"init", "--quiet", "--template=", "--initial-branch=" + cmp.Or(t.branch, "main"), "--object-format=" + format(t.commit), w.Dir,
	}}); err != nil {
		return err
	}
	if err := w.refs(dir, o); err != nil {
		return err
	}
	if err := deepen(dir, w.shallow); err != nil {
		return err
	}
	if err := h.fits(ctx, w, dir); err != nil {
		return err
	}
	for _, args := range [][]string{{"update-ref", "--no-deref", cmp.Or(t.ref(), "HEAD"), t.commit}, {"reset", "--quiet", "--hard"}} {
		if _, err := h.git.run(ctx, command{dir: dir, tree: w.Dir, args: args}); err != nil {
			return err
		}
	}
	return nil
}

// refs gives the checkout what a clone of the true remote would have.
func (w *Workspace) refs(dir string, o *fillOrder) error {
	if err := writeFile(filepath.Join(dir, "packed-refs"), o.Refs); err != nil {
		return err
	}
	if branch, ok := strings.CutPrefix(o.Head, "refs/heads/"); ok {
		origin := filepath.Join(dir, "refs", "remotes", "origin")
		if err := os.MkdirAll(origin, 0o700); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(origin, "HEAD"), []byte("ref: refs/remotes/origin/"+branch+"\n")); err != nil {
			return err
		}
	}
	return w.origin(dir)
}

// origin points the checkout at the true remote, not at the base.
func (w *Workspace) origin(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "config"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("[remote \"origin\"]\n\turl = %s\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", quote(w.Repo))
	if w.Branch != "" {
		text += fmt.Sprintf("[branch %s]\n\tremote = origin\n\tmerge = %s\n", quote(w.Branch), quote("refs/heads/"+w.Branch))
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// fits counts what is to be checked out before it is: a repository of a few kilobytes
// can unpack to more than any disk has.
func (h *helper) fits(ctx context.Context, w *Workspace, dir string) error {
	q := w.m.Quota
	if q.Bytes <= 0 && q.Files <= 0 {
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	count := &census{quota: q, full: stop}
	err := h.git.pipe(ctx, command{dir: dir, args: []string{"ls-tree", "-r", "-l", "-z", "--full-tree", w.Commit}}, count)
	if over := (*QuotaError)(nil); errors.As(err, &over) {
		return tooLarge(w, over)
	}
	return err
}

// tooLarge is the error of a workspace that would outgrow its quota as it is made.
func tooLarge(w *Workspace, over error) error {
	return &belay.Error{Code: belay.CodePayloadTooLarge, Message: fmt.Sprintf("repository %s cannot be checked out: %v", w.Repo, over), Err: over}
}

// census adds up the files that git ls-tree lists.
type census struct {
	quota Quota
	used  Usage
	full  func(error)
	rest  []byte
}

func (c *census) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	for {
		line, rest, ok := bytes.Cut(c.rest, []byte{0})
		if !ok {
			return len(p), nil
		}
		c.rest = rest
		meta, _, _ := bytes.Cut(line, []byte{'\t'})
		if f := bytes.Fields(meta); len(f) == 4 {
			n, _ := strconv.ParseInt(string(f[3]), 10, 64) // a dash for what is no file
			c.used.Bytes += n
			c.used.Files++
		}
		if q := c.quota; q.Bytes > 0 && c.used.Bytes > q.Bytes || q.Files > 0 && c.used.Files > q.Files {
			err := &QuotaError{Usage: c.used, Quota: q}
			c.full(err)
			return 0, err
		}
	}
}
