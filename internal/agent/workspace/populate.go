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

// site returns the description of the workspace in which this steward (a helper process) works. It
// adds the paths and the saved state that only the steward knows.
func (h *helper) site(c *charge) (*site, error) {
	at := &c.Site
	at.Scratch = filepath.Join(h.Scratch, "scratch")
	if len(c.Key) > 0 {
		at.CryptKey = filepath.Join(h.Scratch, "key")
		if err := writeFile(at.CryptKey, c.Key); err != nil {
			return nil, err
		}
	}
	if c.Notes != "" {
		at.recall(c.Notes, c.Noted)
	}
	return at, nil
}

func (h *helper) restore(ctx context.Context, o *restoreOrder) (*answer, error) {
	at, err := h.site(&o.Charge)
	if err != nil {
		return nil, err
	}
	left, err := restoreSite(ctx, &h.git, at, o.Salvage)
	return &answer{Left: left}, err
}

func (h *helper) salvage(ctx context.Context, o *salvageOrder) (*answer, error) {
	at, err := h.site(&o.Charge)
	if err != nil {
		return nil, err
	}
	s, err := salvageSite(ctx, &h.git, at)
	return &answer{Salvage: &s}, err
}

// fill makes a checkout and records its state, with which Salvage later compares the work of the
// command.
func (h *helper) fill(ctx context.Context, o *fillOrder) (*answer, error) {
	at, err := h.site(&o.Charge)
	if err != nil {
		return nil, err
	}
	if err := h.populate(ctx, at, o); err != nil {
		return nil, err
	}
	if err := unlock(ctx, &h.git, at, o.Charge.Repo, o.Charge.NoKey); err != nil {
		return nil, err
	}
	dir := filepath.Join(h.Scratch, "notes")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	sum, notes, err := at.note(ctx, dir)
	return &answer{Noted: sum[:], Notes: notes}, err
}

// populate makes the checkout from the objects that it already contains and from the refs in the
// order.
func (h *helper) populate(ctx context.Context, at *site, o *fillOrder) error {
	t := target{commit: at.Commit, branch: at.Branch}
	dir := filepath.Join(at.Dir, ".git")
	if _, err := h.git.run(ctx, command{args: []string{
		"init", "--quiet", "--template=", "--initial-branch=" + cmp.Or(t.branch, "main"), "--object-format=" +
			format(t.commit), at.Dir,
	}}); err != nil {
		return err
	}
	if err := o.writeRefs(dir); err != nil {
		return err
	}
	if err := deepen(dir, at.Shallow); err != nil {
		return err
	}
	if err := h.checkSize(ctx, at, o); err != nil {
		return err
	}
	for _, args := range [][]string{{"update-ref", "--no-deref", cmp.Or(t.ref(), "HEAD"), t.commit},
		{"reset", "--quiet", "--hard"}} {
		if _, err := h.git.run(ctx, command{dir: dir, tree: at.Dir, args: args}); err != nil {
			return err
		}
	}
	return nil
}

// writeRefs writes the packed refs into a checkout: the refs that a clone of the source would have.
func (o *fillOrder) writeRefs(dir string) error {
	if err := writeFile(filepath.Join(dir, "packed-refs"), o.Refs); err != nil {
		return err
	}
	if branch, ok := strings.CutPrefix(o.Head, "refs/heads/"); ok {
		origin := filepath.Join(dir, "refs", "remotes", "origin")
		if err := os.MkdirAll(origin, 0o700); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(origin, "HEAD"), []byte("ref: refs/remotes/origin/"+branch+
			"\n")); err != nil {
			return err
		}
	}
	return o.setOrigin(dir)
}

// setOrigin makes the source, and not the base (the cached clone), the remote origin of the
// checkout.
func (o *fillOrder) setOrigin(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "config"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("[remote \"origin\"]\n\turl = %s\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
		quote(o.Charge.Repo))
	if branch := o.Charge.Site.Branch; branch != "" {
		text += fmt.Sprintf("[branch %s]\n\tremote = origin\n\tmerge = %s\n", quote(branch),
			quote("refs/heads/"+branch))
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// checkSize returns an error if the checkout would exceed the quota. It computes the size before
// git writes the checkout, because a repository of a few kilobytes can unpack to more than a disk
// can store.
func (h *helper) checkSize(ctx context.Context, at *site, o *fillOrder) error {
	if o.Charge.Quota.Bytes <= 0 && o.Charge.Quota.Files <= 0 {
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	count := &treeCounter{quota: o.Charge.Quota, full: stop}
	err := h.git.pipe(ctx, command{
		dir: filepath.Join(at.Dir, ".git"), args: []string{"ls-tree", "-r", "-l", "-z", "--full-tree", at.Commit},
	}, count)
	if over := (*QuotaError)(nil); errors.As(err, &over) {
		return beyondQuota(o.Charge.Repo, over)
	}
	return err
}

// beyondQuota returns the error for a repository that exceeds the quota while its workspace is
// made.
func beyondQuota(repo string, over error) error {
	return &belay.Error{
		Code: belay.CodePayloadTooLarge, Message: fmt.Sprintf("repository %s cannot be checked out: %v", repo, over),
		Err: over,
	}
}

// treeCounter reads the output of git ls-tree and adds up the sizes of the files.
type treeCounter struct {
	quota Quota
	used  Usage
	full  func(error)
	rest  []byte
}

func (c *treeCounter) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	for {
		line, rest, ok := bytes.Cut(c.rest, []byte{0})
		if !ok {
			return len(p), nil
		}
		c.rest = rest
		meta, _, _ := bytes.Cut(line, []byte{'\t'})
		if f := bytes.Fields(meta); len(f) == 4 {
			n, _ := strconv.ParseInt(string(f[3]), 10, 64) // the size of a submodule is a dash, which counts as 0
			c.used.Bytes += n
			c.used.Files++
		}
		if c.quota.exceeded(c.used) {
			err := &QuotaError{Usage: c.used, Quota: c.quota}
			c.full(err)
			return 0, err
		}
	}
}
