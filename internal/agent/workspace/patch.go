package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// patch returns the difference between two trees. If the patch exceeds the limit, it omits the
// largest files and records these as lost.
func (s *salvage) patch(ctx context.Context, from, to string) ([]byte, error) {
	const tries = 6
	patch, err := s.diff(ctx, from, to)
	for room := 4 * s.at.Most; errors.Is(err, errLimit) && room >= 4*s.at.Most>>tries; room /= 2 {
		var less string
		if less, err = s.withoutLargest(ctx, from, to, room); err != nil {
			return nil, err
		}
		if patch, err = s.diff(ctx, from, less); err == nil {
			err = s.nameMissing(ctx, less, to)
		}
	}
	if errors.Is(err, errLimit) {
		s.filesLost.add("the uncommitted changes: their patch is beyond the limit of %s", mib(s.at.Most))
		return nil, nil
	}
	if len(patch) == 0 {
		return nil, err
	}
	return patch, err
}

func (s *salvage) diff(ctx context.Context, from, to string) ([]byte, error) {
	return s.proof.git(ctx, command{limit: s.at.Most, args: []string{
		"diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv",
		"--no-color", from, to,
	}})
}

// differing is a path at which two trees differ.
type differing struct {
	name string
	was  entry
	is   string // the object in the second tree
	size int64  // the sum of the sizes of both objects
}

// differences lists the paths at which two trees differ.
func (s *salvage) differences(ctx context.Context, from, to string) ([]differing, error) {
	out, err := s.proof.git(ctx, command{args: []string{"diff-tree", "-r", "-z", "--raw", "--no-renames", from, to}})
	if err != nil {
		return nil, err
	}
	var all []differing
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		if f := strings.Fields(fields[i]); len(f) == 5 {
			all = append(all, differing{
				name: fields[i+1], was: entry{mode: strings.TrimPrefix(f[0], ":"), object: f[2]}, is: f[3],
			})
		}
	}
	return all, nil
}

// withoutLargest returns a copy of newTree in which the files with the largest changes are as in
// oldTree. The remaining changes have at most room bytes together.
func (s *salvage) withoutLargest(ctx context.Context, oldTree, newTree string, room int64) (string, error) {
	all, err := s.differences(ctx, oldTree, newTree)
	if err != nil {
		return "", err
	}
	if err := s.sizes(ctx, all); err != nil {
		return "", err
	}
	slices.SortStableFunc(all, func(a, b differing) int { return cmp.Compare(a.size, b.size) })
	var info strings.Builder
	for _, d := range all {
		if room -= d.size; room >= 0 {
			continue
		}
		if strings.Trim(d.was.mode, "0") == "" {
			info.WriteString(gone(d.name, s.at.hash()))
		} else {
			fmt.Fprintf(&info, "%s %s\t%s\x00", d.was.mode, d.was.object, d.name)
		}
	}
	return s.proof.writeTree(ctx, filepath.Join(s.proof.dir, "less.index"), newTree, info.String())
}

// overhead is the estimated number of bytes that a file takes in a patch in addition to its content
// and name.
const overhead = 256

func (s *salvage) sizes(ctx context.Context, all []differing) error {
	var objects []string
	for _, d := range all {
		objects = append(objects, d.was.object, d.is)
	}
	out, err := s.proof.git(ctx, command{
		stdin: lines(objects), args: []string{"cat-file", "--batch-check=%(objectsize)"},
	})
	if err != nil {
		return err
	}
	sizes := strings.Split(string(out), "\n")
	for i := range all {
		all[i].size = overhead + 4*int64(len(all[i].name))
		for _, j := range []int{2 * i, 2*i + 1} {
			if n, err := strconv.ParseInt(sizes[min(j, len(sizes)-1)], 10, 64); err == nil {
				all[i].size += n
			}
		}
	}
	return nil
}

// nameMissing records as lost each file that differs between newTree and partTree, the tree with
// only a part of the changes.
func (s *salvage) nameMissing(ctx context.Context, partTree, newTree string) error {
	all, err := s.differences(ctx, partTree, newTree)
	names := make([]string, 0, len(all))
	for _, d := range all {
		names = append(names, d.name)
	}
	s.filesLost.add("the uncommitted changes of %s: with them the patch is beyond the limit of %s", listed(names),
		mib(s.at.Most))
	return err
}
