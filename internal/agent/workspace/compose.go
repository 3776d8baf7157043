package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Composed is the work of a command as a commit that can be pushed.
type Composed struct {
	// Commit is the commit with all changes of the command; it equals the commit that was checked
	// out if the command changed nothing.
	Commit string `json:"commit"`
	// Pack has the objects that Commit has in addition to the commit that was checked out.
	Pack []byte `json:"pack,omitempty"`
	// Head is the commit of HEAD, without the uncommitted changes; empty if HEAD has no commit. Files
	// lists the changed files of Commit: a letter as in git status, a space and the path, at most
	// maxListed of them. More is the number of the others.
	Head  string   `json:"head,omitempty"`
	Files []string `json:"files,omitempty"`
	More  int      `json:"more,omitempty"`
}

// maxListed is the maximum length of Composed.Files.
const maxListed = 500

// composeOrder is the order for a steward (the helper process that works in a workspace) to make a
// commit of saved work.
type composeOrder struct {
	Charge        charge
	Bundle, Patch []byte
	// Message is the message of the commit that contains the uncommitted changes, and When its time.
	Message string
	When    time.Time
}

// Compose makes one commit of saved work. It reads only the saved work and the objects that the
// workspace was made of, and nothing that the command can write. The commit with the uncommitted
// changes has the given message and time, so that the same call makes the same commit again.
func (m *Manager) Compose(ctx context.Context, w *Workspace, s Salvage, message string, when time.Time) (Composed,
	error) {
	if w.Commit == "" {
		return Composed{}, errors.New("compose a commit: the workspace has no repository")
	}
	if len(s.Bundle)+len(s.Patch) == 0 {
		return Composed{Commit: w.Commit, Head: w.Commit}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.SalvageTimeout, fmt.Errorf("it took longer than %s",
		m.SalvageTimeout))
	defer cancel()
	o := order{Compose: &composeOrder{m.charge(w), s.Bundle, s.Patch, message, when}}
	a, err := m.send(ctx, m.stewardFor(w, o, 4*m.MaxSalvage+1<<20))
	switch {
	case err != nil:
	case a.Composed == nil, !isObject(a.Composed.Commit), len(a.Composed.Commit) != len(w.Commit),
		a.Composed.Head != "" && !isObject(a.Composed.Head), len(a.Composed.Files) > maxListed,
		int64(len(a.Composed.Pack)) > 2*m.MaxSalvage:
		err = errors.New("the answer of the steward is not valid")
	default:
		return *a.Composed, nil
	}
	return Composed{}, fmt.Errorf("compose the commit of %s: %w", w.ID, err)
}

// compose makes the commit in a private git directory that has only the objects of the base and of
// the bundle.
func (h *helper) compose(ctx context.Context, o *composeOrder) (*answer, error) {
	at, err := h.site(&o.Charge)
	if err != nil {
		return nil, err
	}
	p, err := newPrivate(&h.git, at, at.Objects)
	if err != nil {
		return nil, err
	}
	defer p.remove()
	from := at.Commit
	if len(o.Bundle) > 0 {
		r, err := unbundle(ctx, &h.git, p.dir, at.Commit, o.Bundle)
		if err != nil {
			return nil, fmt.Errorf("the commits: %w", err)
		}
		from = r.head.commit
	}
	c := Composed{Commit: from, Head: from}
	if len(o.Patch) > 0 || from == "" {
		if c.Commit, err = p.commitPatch(ctx, from, o); err != nil {
			return nil, fmt.Errorf("the uncommitted changes: %w", err)
		}
	}
	if c.Commit == at.Commit {
		return &answer{Composed: &c}, nil
	}
	if err := p.listFiles(ctx, at.Commit, &c); err != nil {
		return nil, err
	}
	c.Pack, err = p.git(ctx, command{
		limit: 2 * at.Most, stdin: lines([]string{c.Commit, "^" + at.Commit}),
		args: []string{"pack-objects", "--revs", "--thin", "--stdout", "--quiet"},
	})
	return &answer{Composed: &c}, err
}

func (p *private) listFiles(ctx context.Context, from string, c *Composed) error {
	out, err := p.git(ctx, command{args: []string{"diff-tree", "-r", "-z", "--no-renames", "--name-status", from,
		c.Commit}})
	if err != nil {
		return err
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		if len(c.Files) == maxListed {
			c.More = (len(fields) - i) / 2
			break
		}
		c.Files = append(c.Files, printable(fields[i]+" "+fields[i+1]))
	}
	return nil
}

// commitPatch applies a patch to the tree of the commit from, and returns a commit with the
// resulting tree. It applies the patch to trees and not to files, so that neither attributes nor
// links can change the result. If from is empty, the commit has no parent.
func (p *private) commitPatch(ctx context.Context, from string, o *composeOrder) (string, error) {
	tree, err := p.tree(ctx, from)
	if err != nil {
		return "", err
	}
	index := filepath.Join(p.dir, "compose.index")
	if _, err := p.git(ctx, command{index: index, args: []string{"read-tree", tree}}); err != nil {
		return "", err
	}
	if len(o.Patch) > 0 {
		if _, err := p.git(ctx, command{index: index, stdin: bytes.NewReader(o.Patch), args: []string{
			"apply", "--cached", "--binary", "--whitespace=nowarn", "-",
		}}); err != nil {
			return "", err
		}
	}
	now, err := p.line(ctx, command{index: index, args: []string{"write-tree"}})
	if err != nil || now == tree && from != "" {
		return from, err
	}
	var c strings.Builder
	fmt.Fprintf(&c, "tree %s\n", now)
	if from != "" {
		fmt.Fprintf(&c, "parent %s\n", from)
	}
	who := fmt.Sprintf("Belay <belay@localhost> %d +0000", o.When.Unix())
	fmt.Fprintf(&c, "author %s\ncommitter %s\n\n%s\n", who, who, strings.TrimSpace(o.Message))
	return p.store(ctx, "commit", []byte(c.String()))
}
