package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// unbundle unpacks a bundle into a git directory that has the commit base (the commit that was
// checked out), and returns the record in the bundle: the saved values of HEAD and the refs. It
// checks every object, and that no object is missing, because git itself would trust the bundle.
func unbundle(ctx context.Context, g *git, dir, base string, bundle []byte) (*record, error) {
	state, err := unpack(ctx, g, dir, bundle)
	if err != nil {
		return nil, err
	}
	r, err := readState(ctx, g, dir, state)
	if err != nil {
		return nil, err
	}
	err = r.checkComplete(ctx, g, dir, base, state)
	return r, err
}

// unpack unpacks the objects of a bundle. It returns the commit of stateRef, the ref in the bundle
// whose commit contains the saved values of HEAD and the refs.
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
		return "", errors.New("the bundle does not contain the value of HEAD")
	}
	_, err = g.run(ctx, command{
		dir: dir, stdin: bytes.NewReader(pack), args: []string{"index-pack", "--stdin", "--fix-thin", "--fsck-objects"},
	})
	return state, err
}

// checkComplete checks that a git directory has all objects to which the record of a bundle (the
// saved values of HEAD and the refs) leads.
func (r *record) checkComplete(ctx context.Context, g *git, dir, base, state string) error {
	tips := []string{"^" + base, state}
	if r.head.commit != "" {
		tips = append(tips, r.head.commit)
	}
	for _, ref := range sortedKeys(r.refs) {
		tips = append(tips, r.refs[ref])
	}
	if _, err := g.run(ctx, command{dir: dir, stdin: lines(tips), args: []string{"rev-list", "--objects", "--quiet",
		"--stdin"}}); err != nil {
		return fmt.Errorf("objects are missing: %w", err)
	}
	return nil
}

// bundle packs the objects to which a record (the saved state of git) leads, without the objects of
// the commit that was checked out. It returns the number of commits on HEAD and the branches even
// if the bundle exceeds its limit.
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
	if err := p.setRefs(h, refs); err != nil {
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

// lines returns its arguments with a newline after each, which is the input format of git's
// --stdin.
func lines(first []string, more ...string) *strings.Reader {
	return strings.NewReader(strings.Join(append(first[:len(first):len(first)], more...), "\n") + "\n")
}

// attempts is the maximum number of bundles that one salvage makes while it searches for the pieces
// (such as branches) that cannot be packed.
const attempts = 40

// errTried means that the maximum number of bundles was made.
var errTried = errors.New("too many parts cannot be kept; the search for the remaining parts was ended")

// packing makes one bundle of as many pieces (parts such as a branch or the stash) as possible.
type packing struct {
	s      *salvage
	reader *private
	change *change
	tried  int

	// The following fields have the results of the last bundle that try has made and unpacked.
	bundle []byte
	count  int
	from   string // the commit of HEAD in the bundle
	proof  *private
}

// try makes a bundle of the pieces and unpacks it again, which proves that the bundle can be
// restored.
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
	proof, err := k.s.newProof(ctx)
	if err != nil {
		return err
	}
	state, err := unpack(ctx, k.s.g, proof.dir, bundle)
	if err == nil {
		err = r.checkComplete(ctx, k.s.g, proof.dir, k.s.at.Commit, state)
	}
	if err != nil {
		proof.remove()
		return fmt.Errorf("the bundle of these parts cannot be restored: %w", err)
	}
	k.proof.remove()
	k.bundle, k.count, k.from, k.proof = bundle, count, r.head.commit, proof
	return nil
}

// tooLarge is the error for a bundle that exceeds its size limit.
type tooLarge struct {
	commits int
	limit   int64
}

func (e *tooLarge) Error() string {
	return fmt.Sprintf("%d in a bundle beyond the limit of %s", e.commits, mib(e.limit))
}

// best makes a bundle of all pieces (such as branches) or, if that fails, of as many pieces as
// possible. It omits pieces that are too large or that make the bundle unusable, and records them
// as lost. It returns the pieces that are in the bundle.
func (k *packing) best(ctx context.Context, pieces []piece) ([]piece, error) {
	alone := false // whether a bundle of HEAD alone was tried
	for {
		err := k.try(ctx, pieces)
		var big *tooLarge
		switch {
		case err == nil:
			return pieces, nil
		case ctx.Err() != nil || errors.Is(err, errTried) || len(pieces) == 0:
			return nil, err
		case !errors.As(err, &big):
			pieces = k.dropUnpackable(ctx, pieces)
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

// shorten removes the least important pieces (parts of the bundle), such as stashes, from the list,
// and records them as lost.
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

// dropUnpackable removes the pieces (parts of the bundle, such as branches) that cannot be packed
// even alone. It finds these pieces by halving the list.
func (k *packing) dropUnpackable(ctx context.Context, pieces []piece) []piece {
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
	case err == nil, errors.As(err, &big): // the method best handles a bundle that is too large
		return pieces
	case len(pieces) > 1 && ctx.Err() == nil && !errors.Is(err, errTried):
		return k.dropUnpackable(ctx, pieces)
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
