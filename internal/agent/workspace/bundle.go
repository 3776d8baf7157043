package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// unbundle takes a bundle of ours into a git directory that holds the base commit,
// and gives where HEAD and the refs stood. Every object is checked, and that none is
// missing: git itself would take a bundle in on trust.
func unbundle(ctx context.Context, g *git, dir, base string, bundle []byte) (*record, error) {
	state, err := unpack(ctx, g, dir, bundle)
	if err != nil {
		return nil, err
	}
	r, err := readState(ctx, g, dir, state)
	if err != nil {
		return nil, err
	}
	err = r.whole(ctx, g, dir, base, state)
	return r, err
}

// unpack takes in the objects of a bundle and gives the commit of stateRef.
func unpack(ctx context.Context, g *git, dir string, bundle []byte) (state string, err error) {
	header, pack, ok := bytes.Cut(bundle, []byte("\n\n"))
	if !ok || !bytes.HasPrefix(header, []byte("# v")) {
		return "", errors.New("it is no git bundle")
	}
	for line := range strings.SplitSeq(string(header), "\n") {
		if object, ref, ok := strings.Cut(line, " "); ok && ref == stateRef && isObject(object) {
			state = object
		}
	}
	if state == "" {
		return "", errors.New("the bundle does not say where HEAD stood")
	}
	_, err = g.run(ctx, command{
		dir: dir, stdin: bytes.NewReader(pack), args: []string{"index-pack", "--stdin", "--fix-thin", "--fsck-objects"},
	})
	return state, err
}

// whole makes sure that a git directory has all that a record needs.
func (r *record) whole(ctx context.Context, g *git, dir, base, state string) error {
	tips := []string{"^" + base, state}
	if r.head.commit != "" {
		tips = append(tips, r.head.commit)
	}
	for _, ref := range sortedKeys(r.refs) {
		tips = append(tips, r.refs[ref])
	}
	if _, err := g.run(ctx, command{dir: dir, stdin: lines(tips), args: []string{"rev-list", "--objects", "--quiet",
		"--stdin"}}); err != nil {
		return fmt.Errorf("not all is there: %w", err)
	}
	return nil
}

// bundle packs what a record needs, without what the base commit holds. It counts the
// commits of HEAD and the branches also if the bundle is beyond its limit.
func (p *private) bundle(ctx context.Context, r *record) ([]byte, int, error) {
	base := "^" + p.at.Commit
	state, err := p.writeState(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	refs := map[string]string{stateRef: state}
	var tips, work []string
	if r.head.commit != "" {
		tips, work = append(tips, "HEAD"), append(work, "HEAD")
	}
	for _, ref := range sortedKeys(r.refs) {
		if refs[ref] = r.refs[ref]; slices.Contains(r.objects, r.refs[ref]) || refs[ref] == p.at.Commit {
			continue
		}
		tips = append(tips, ref)
		if strings.HasPrefix(ref, heads) {
			work = append(work, ref)
		}
	}
	h := r.head
	h.ref = follow(r.links, h.ref)
	if err := p.point(h, refs); err != nil {
		return nil, 0, err
	}
	var count int
	if len(work) > 0 {
		out, err := p.git(ctx, command{stdin: lines(work, base), args: []string{"rev-list", "--count", "--stdin"}})
		if err != nil {
			return nil, 0, err
		}
		if _, err := fmt.Sscan(string(out), &count); err != nil {
			return nil, 0, fmt.Errorf("git rev-list: %w", err)
		}
	}
	out, err := p.git(ctx, command{
		limit: p.at.Most, stdin: lines(tips, stateRef, base), args: []string{
			"bundle", "create", "--quiet", "-", "--stdin",
		},
	})
	return out, count, err
}

// lines is what git reads from --stdin.
func lines(first []string, more ...string) *strings.Reader {
	return strings.NewReader(strings.Join(append(first[:len(first):len(first)], more...), "\n") + "\n")
}

// attempts bounds how often a bundle is tried to find out which pieces spoil it.
const attempts = 40

// errTried means that it was tried often enough.
var errTried = errors.New("too much of it cannot be kept to find out what can")

// packing makes a bundle of as many pieces as possible.
type packing struct {
	s      *salvage
	reader *private
	change *change
	tried  int

	// What came of the newest try that succeeded.
	bundle []byte
	count  int
	from   string // where HEAD is in it
	proof  *private
}

// try makes a bundle of pieces and proves that it can be restored.
func (k *packing) try(ctx context.Context, pieces []piece) error {
	if k.tried++; k.tried > attempts {
		return errTried
	}
	r := k.s.record(k.change, pieces)
	bundle, count, err := k.reader.bundle(ctx, r)
	if errors.Is(err, errLimit) {
		return &tooLarge{count, k.s.at.Most}
	}
	if err != nil {
		return err
	}
	proof, err := k.s.known(ctx)
	if err != nil {
		return err
	}
	state, err := unpack(ctx, k.s.g, proof.dir, bundle)
	if err == nil {
		err = r.whole(ctx, k.s.g, proof.dir, k.s.at.Commit, state)
	}
	if err != nil {
		proof.remove()
		return fmt.Errorf("the bundle of them is not sound: %w", err)
	}
	k.proof.remove()
	k.bundle, k.count, k.from, k.proof = bundle, count, r.head.commit, proof
	return nil
}

// tooLarge means that a bundle is beyond its limit.
type tooLarge struct {
	commits int
	limit   int64
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("%d in a bundle beyond the limit of %s", e.commits, mib(e.limit))
}

// best tries all pieces, and then without those that are too much or that spoil the
// rest, which it names as lost. It gives those that are in the bundle.
func (k *packing) best(ctx context.Context, pieces []piece) ([]piece, error) {
	alone := false // HEAD was tried without the others
	for {
		err := k.try(ctx, pieces)
		var big *tooLarge
		switch {
		case err == nil:
			return pieces, nil
		case ctx.Err() != nil || errors.Is(err, errTried) || len(pieces) == 0:
			return nil, err
		case !errors.As(err, &big):
			pieces = k.sift(ctx, pieces)
		case len(pieces) == 1:
			k.lose(pieces[0], err)
			return nil, nil
		case !alone && pieces[0].tier == ofHead:
			alone = true
			if err := k.try(ctx, pieces[:1]); err != nil {
				k.lose(pieces[0], err)
				pieces = pieces[1:]
			}
		default:
			pieces = k.shorten(pieces, err)
		}
		if len(pieces) == 0 {
			return nil, nil
		}
	}
}

// shorten leaves out the pieces of the last tier.
func (k *packing) shorten(pieces []piece, err error) (less []piece) {
	last := pieces[0].tier
	for _, p := range pieces {
		last = max(last, p.tier)
	}
	for _, p := range pieces {
		if p.tier < last {
			less = append(less, p)
		} else {
			k.lose(p, err)
		}
	}
	return less
}

// sift takes out the pieces that cannot be kept even alone.
func (k *packing) sift(ctx context.Context, pieces []piece) []piece {
	if len(pieces) > 1 {
		half := len(pieces) / 2
		return slices.Concat(k.fit(ctx, pieces[:half]), k.fit(ctx, pieces[half:]))
	}
	return k.fit(ctx, pieces)
}

func (k *packing) fit(ctx context.Context, pieces []piece) []piece {
	err := k.try(ctx, pieces)
	var big *tooLarge
	switch {
	case err == nil, errors.As(err, &big): // the size is seen to later
		return pieces
	case len(pieces) > 1 && ctx.Err() == nil && !errors.Is(err, errTried):
		return k.sift(ctx, pieces)
	}
	for _, p := range pieces {
		k.lose(p, err)
	}
	return nil
}

func (k *packing) lose(p piece, err error) {
	if p.tier == ofHead {
		k.s.lost.add("its commits (%v); the patch holds the files as they were left", err)
		return
	}
	k.s.lost.add("%s (%v)", p.what, err)
}
