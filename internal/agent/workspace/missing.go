package workspace

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// maxAttributes is the maximum number of .gitattributes files that listMissing reads.
// maxAttributesSize is the maximum size of each of these files, in bytes.
const (
	maxAttributes     = 1_000
	maxAttributesSize = 1 << 20
)

// listMissing lists the parts of the repository that a fresh checkout lacks, such as submodules. It
// finds them in the index.
func (at *site) listMissing(index []byte) (notes []string) {
	all, err := parseIndex(index, at.hash())
	if err != nil {
		return nil
	}
	var modules []string
	looked, large := 0, false
	for _, l := range all {
		switch {
		case l.entry().mode == submodule:
			modules = append(modules, printable(l.name))
		case path.Base(l.name) == ".gitattributes" && looked < maxAttributes && !large:
			looked++
			raw, err := readRegular(filepath.Join(at.Dir, l.name), maxAttributesSize)
			large = err == nil && strings.Contains(string(raw), "filter=lfs")
		}
	}
	if len(modules) > 0 {
		notes = append(notes, fmt.Sprintf(
			"submodules are not supported and not checked out: %s; git submodule update --init fetches those that "+
				"the job can reach", listed(modules)))
	}
	if large {
		notes = append(notes, "Git LFS is not supported: of its files the checkout has the pointers; git lfs pull "+
			"fetches them if the job has git-lfs and can reach them")
	}
	return notes
}
