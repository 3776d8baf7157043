package workspace

import (
	"bytes"
	"context"
)

// maxDiff is the maximum size, in bytes, of Salvage.Diff.
const maxDiff = 1 << 20

// prefix keeps the first bytes that are written to it, and fails when more are written.
type prefix struct {
	buf  bytes.Buffer
	most int
	cut  bool
}

func (p *prefix) Write(b []byte) (int, error) {
	room := p.most - p.buf.Len()
	if len(b) <= room {
		return p.buf.Write(b)
	}
	p.cut = true
	p.buf.Write(b[:room])
	return room, errLimit
}

// describe makes the difference between the commit that was checked out and the given tree, for
// people to read. Without new commits the patch has the same difference.
func (s *salvage) describe(ctx context.Context, tree string) error {
	if !s.at.Diff || s.from == s.at.Commit {
		return nil
	}
	out := &prefix{most: maxDiff}
	err := s.g.pipe(ctx, command{dir: s.proof.dir, args: []string{
		"diff-tree", "-r", "-p", "--find-renames", "--no-ext-diff", "--no-textconv", "--no-color", s.at.Commit, tree,
	}}, out)
	if err != nil && !out.cut {
		return err
	}
	s.out.Diff, s.out.DiffCut = out.buf.Bytes(), out.cut
	if out.cut {
		s.out.Diff = s.out.Diff[:bytes.LastIndexByte(s.out.Diff, '\n')+1]
	}
	return nil
}
