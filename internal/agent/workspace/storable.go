package workspace

import "strings"

// storable reports whether git accepts name as the name of an index entry.
func storable(name string) bool {
	if name == "" || len(name) > maxName || strings.ContainsRune(name, 0) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
		for piece := range strings.SplitSeq(part, `\`) { // other systems treat \ as a separator
			if dotGit(piece) {
				return false
			}
		}
	}
	return true
}

// dotGit reports whether some file system would treat this name as .git.
func dotGit(name string) bool {
	if name == "" || strings.IndexByte(".gG\xe2\xef", name[0]) < 0 {
		return false
	}
	name, _, _ = strings.Cut(name, ":")
	name = strings.ToLower(strings.TrimRight(name, ". "))
	if name == ".git" || name == "git~1" {
		return true
	}
	visible := strings.Map(func(r rune) rune {
		switch { // HFS+ ignores these characters
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name)
	return visible == ".git"
}
