package workspace

import (
	"bytes"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// Limits for reflogs. If a reflog exceeds them, its newest entries are kept.
const (
	maxLog     = 1 << 20 // bytes of one reflog
	maxLogs    = 8 << 20 // bytes of all reflogs
	maxEntries = 1_000   // entries of one reflog
)

// logEntry is a line of a reflog: the previous object, the new object, and the rest of the line.
type logEntry struct{ was, object, rest string }

// withPrevious returns a copy of the entry with another previous object. If previous is "", this
// object is a name of zeros, which in a reflog means that there was no object.
func (e logEntry) withPrevious(previous string) logEntry {
	if previous == "" {
		previous = strings.Repeat("0", len(e.object))
	}
	return logEntry{previous, e.object, e.rest}
}

var logForm = regexp.MustCompile(`^([0-9a-f]{40,64}) ([0-9a-f]{40,64}) ([^\t]*<[^\t]*> [0-9]{1,12} [+-][0-9]{4}(?:\t.*)?)$`)

// parseLog reads at most maxEntries of the newest entries of a reflog, and ignores invalid lines.
// cut says that it omitted older entries.
func parseLog(raw []byte) (entries []logEntry, cut bool) {
	for line := range bytes.SplitSeq(raw, []byte("\n")) {
		text := string(shown(line))
		if m := logForm.FindStringSubmatch(text); len(m) > 0 && isObject(m[1]) && isObject(m[2]) {
			entries = append(entries, logEntry{m[1], m[2], m[3]})
		}
	}
	if extra := len(entries) - maxEntries; extra > 0 {
		return entries[extra:], true
	}
	return entries, false
}

// shown replaces control characters by question marks.
func shown(line []byte) []byte {
	line = bytes.Clone(line)
	for i, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			line[i] = '?'
		}
	}
	return line
}

// logText writes entries in the format that parseLog reads.
func logText(entries []logEntry) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		b.WriteString(e.was + " " + e.object + " " + e.rest + "\n")
	}
	return b.Bytes()
}

// readLog reads the newest entries of the reflog of a ref.
func (r *repository) readLog(ref string) (entries []logEntry, cut bool, err error) {
	raw, cut, err := r.tail("logs/"+ref, maxLog)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if cut { // raw begins in the middle of a line
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	entries, more := parseLog(raw)
	return entries, cut || more, nil
}

// stashes returns the entries of the stash, the oldest first. They are the reflog of refs/stash,
// the same list that git stash list shows.
func (r *repository) stashes(lost *losses) []logEntry {
	entries, cut, err := r.readLog(stashRef)
	if err != nil {
		lost.add("the list of stashes (%v)", err)
	}
	if cut {
		lost.add("the oldest stashes, because their list is too long")
	}
	if top := r.refs[stashRef]; top != "" && (len(entries) == 0 || entries[len(entries)-1].object != top) {
		entries = append(entries, logEntry{object: top, rest: "belay <belay@localhost> 0 +0000\tstash"})
	}
	return entries
}

// logs returns the reflogs of HEAD and the branches that fit into maxLogs bytes together.
func (r *repository) logs() map[string][]logEntry {
	all, size := make(map[string][]logEntry), 0
	for _, ref := range slices.Concat([]string{"HEAD"}, sortedKeys(branches(r.refs))) {
		entries, _, err := r.readLog(ref)
		for _, e := range entries {
			size += len(e.was) + len(e.object) + len(e.rest) + 3
		}
		if err == nil && len(entries) > 0 && size <= maxLogs {
			all[ref] = entries
		}
	}
	return all
}
