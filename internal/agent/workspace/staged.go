package workspace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The modes of entries in an index.
const (
	modeFile, modeProgram, modeLink = "100644", "100755", "120000"

	submodule = "160000" // the entry is a commit
)

// staged is the content of an index: a tree, and the entries that cannot be stored in a tree.
type staged struct {
	tree    string
	special []special
}

// special is an index entry that a tree cannot represent completely: one side of a merge conflict,
// or a file with a flag of git update-index.
type special struct {
	entry
	stage                      int
	assumed, skipped, intended bool // --assume-unchanged; --skip-worktree; --intent-to-add
	name                       string
}

func (l leaf) special() special {
	return special{
		entry: l.entry(), stage: l.stage(), name: l.name,
		assumed: l.flags&flagAssumed != 0, skipped: l.more&moreSkipped != 0, intended: l.more&moreIntended != 0,
	}
}

func (s special) leaf() leaf {
	l := leaf{stat: make([]byte, statBytes), name: s.name, flags: uint16(s.stage) << shiftStage}
	mode, _ := strconv.ParseUint(s.mode, 8, 32)
	l.set(atMode, uint32(mode))
	l.object, _ = hex.DecodeString(s.object)
	if s.assumed {
		l.flags |= flagAssumed
	}
	if s.skipped {
		l.more |= moreSkipped
	}
	if s.intended {
		l.more |= moreIntended
	}
	return l
}

// whole reports whether a tree can represent the entry except for the flags of the entry.
func (s special) whole() bool { return s.stage == 0 && !s.intended }

// readIndex reads the index of a checkout; nil if there is no index. If parseIndex does not support
// the index's version, git reads a copy of the index in a private directory.
func readIndex(ctx context.Context, p *private, repo *repository) ([]leaf, error) {
	raw, err := repo.read("index", maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := parseIndex(raw, p.at.hash())
	if err == nil {
		return all, nil
	}
	index := filepath.Join(p.dir, "workspace.index")
	if err := writeFile(index, raw); err != nil {
		return nil, err
	}
	if err := copyShared(repo, p.dir); err != nil {
		return nil, err
	}
	out, err := p.git(ctx, command{index: index, args: []string{"ls-files", "-z", "--cached", "--stage", "-t", "-v"}})
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), errIndex)
	}
	for line := range strings.SplitSeq(string(out), "\x00") {
		meta, name, ok := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		if !ok || len(f) != 4 {
			continue
		}
		stage, _ := strconv.Atoi(f[3])
		all = append(all, special{
			entry: entry{mode: f[1], object: f[2]}, stage: stage, name: name,
			assumed: strings.ToLower(f[0]) == f[0], skipped: strings.EqualFold(f[0], "S"),
		}.leaf())
	}
	return all, nil
}

// copyShared copies the shared index files to which a split index refers.
func copyShared(repo *repository, to string) error {
	d, err := repo.root.Open(".")
	if err != nil {
		return withoutPath(err)
	}
	defer d.Close()
	left := 8
	for {
		entries, err := d.ReadDir(512)
		if err != nil {
			return nil // the directory has no more entries; if a file is missing, git reports it
		}
		for _, e := range entries {
			if hash, ok := strings.CutPrefix(e.Name(), "sharedindex."); !ok || !isObject(hash) || left == 0 {
				continue
			}
			left--
			raw, err := repo.read(e.Name(), maxIndex)
			if err == nil {
				err = writeFile(filepath.Join(to, e.Name()), raw)
			}
			if err != nil {
				return err
			}
		}
	}
}

// stage returns the difference between the entries of an index and a tree; nil if they are equal.
// tracked lists the files of the tree. stage records an unreadable entry as lost.
func stage(ctx context.Context, p *private, all []leaf, tree string, tracked map[string]entry, lost *losses) (*staged,
	error) {
	differ, seen := diffLeaves(all, tracked)
	if len(differ) == 0 && seen == len(tracked) {
		return nil, nil
	}
	kinds, err := p.kinds(ctx, objectsOf(differ))
	if err != nil {
		return nil, err
	}
	var s staged
	have := make(map[string]bool, len(all))
	for _, l := range all {
		have[l.name] = true
	}
	var info strings.Builder
	for name := range tracked {
		if !have[name] {
			info.WriteString(gone(name, p.at.hash()))
		}
	}
	for _, l := range differ {
		switch e := l.special(); {
		case !storable(e.name) || !slices.Contains([]string{modeFile, modeProgram, modeLink, submodule}, e.mode),
			e.mode != submodule && kinds[e.object] != "blob":
			lost.add("the staged version of %s, which cannot be read", e.name)
		default:
			if e.whole() {
				fmt.Fprintf(&info, "%s %s\t%s\x00", e.mode, e.object, e.name)
			} else {
				info.WriteString(gone(e.name, p.at.hash()))
			}
			if e.stage > 0 || e.assumed || e.skipped || e.intended {
				s.special = append(s.special, e)
			}
		}
	}
	index := filepath.Join(p.dir, "staged.index")
	if s.tree, err = p.writeTree(ctx, index, tree, info.String()); err != nil {
		return nil, err
	}
	return &s, nil
}

// gone returns the line for git update-index that removes a name from the index.
func gone(name string, hash int) string {
	return "0 " + strings.Repeat("0", 2*hash) + "\t" + name + "\x00"
}

// diffLeaves returns the entries that differ from a tree, and the number of equal entries.
func diffLeaves(all []leaf, tracked map[string]entry) (differ []leaf, same int) {
	for _, l := range all {
		known, ok := tracked[l.name]
		if ok && l.plain() && l.entry() == known {
			same++
			continue
		}
		differ = append(differ, l)
	}
	return differ, same
}

func objectsOf(all []leaf) []string {
	objects := make([]string, 0, len(all))
	for _, l := range all {
		if e := l.entry(); e.mode != submodule {
			objects = append(objects, e.object)
		}
	}
	return objects
}

// specialText writes entries in the format that readSpecial reads.
func specialText(all []special) []byte {
	var b bytes.Buffer
	for _, s := range all {
		flags := "-"
		for _, f := range []struct {
			is   bool
			sign string
		}{{s.assumed, "a"}, {s.skipped, "s"}, {s.intended, "i"}} {
			if f.is {
				flags += f.sign
			}
		}
		fmt.Fprintf(&b, "%s %s %s %d\t%s\x00", flags, s.mode, s.object, s.stage, s.name)
	}
	return b.Bytes()
}

func readSpecial(text []byte) (all []special, err error) {
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
		if line == "" {
			continue
		}
		meta, name, ok := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		if !ok || len(f) != 4 || len(f[3]) != 1 || f[3] > "3" || f[3] < "0" || !isObject(f[2]) || !storable(name) ||
			!slices.Contains([]string{modeFile, modeProgram, modeLink, submodule}, f[1]) {
			return nil, errors.New("the index cannot be read")
		}
		all = append(all, special{
			entry: entry{mode: f[1], object: f[2]}, stage: int(f[3][0] - '0'), name: name,
			assumed: strings.Contains(f[0], "a"), skipped: strings.Contains(f[0], "s"), intended: strings.Contains(f[0],
				"i"),
		})
	}
	return all, nil
}

// merge adds special entries to an index and returns the resulting index. A special entry replaces
// all entries of the same name.
func merge(raw []byte, hash int, more []special) ([]byte, error) {
	all, err := parseIndex(raw, hash)
	if err != nil {
		return nil, err
	}
	replaced := make(map[string]bool)
	for _, s := range more {
		replaced[s.name] = true
	}
	all = slices.DeleteFunc(all, func(l leaf) bool { return replaced[l.name] })
	for _, s := range more {
		all = append(all, s.leaf())
	}
	return encode(all, hash), nil
}

// encode returns an index with the given entries in git's format.
func encode(all []leaf, hash int) []byte {
	slices.SortStableFunc(all, func(a, b leaf) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.stage(), b.stage()))
	})
	version := uint32(2)
	if slices.ContainsFunc(all, func(l leaf) bool { return l.more != 0 }) {
		version = 3
	}
	b := binary.BigEndian.AppendUint32([]byte("DIRC"), version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(all)))
	for _, l := range all {
		from := len(b)
		b = append(append(b, l.stat...), l.object...)
		flags := l.flags&^(0x0fff|flagExtended) | uint16(min(len(l.name), 0x0fff))
		if l.more != 0 {
			flags |= flagExtended
		}
		b = binary.BigEndian.AppendUint16(b, flags)
		if l.more != 0 {
			b = binary.BigEndian.AppendUint16(b, l.more)
		}
		b = append(b, l.name...)
		b = append(b, make([]byte, 8-(len(b)-from)%8)...)
	}
	return append(b, checksum(b, hash)...)
}
