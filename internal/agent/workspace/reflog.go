package workspace

import (
	"bytes"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// Bounds of what is kept of a log of a ref: the newest.
const (
	maxLog     = 1 << 20 // bytes of one
	maxLogs    = 8 << 20 // bytes of all
	maxEntries = 1_000   // of one
)

// logEntry is a line of the log of a ref: where it stood and came to stand, and what
// else the line says.
type logEntry struct{ was, object, rest string }

// after is the entry as it comes after what was.
func (e logEntry) after(was string) logEntry {
	if was == "" {
		was = strings.Repeat("0", len(e.object))
	}
	return logEntry{was, e.object, e.rest}
}

var logForm = regexp.MustCompile(`^([0-9a-f]{40,64}) ([0-9a-f]{40,64}) ([^\t]*<[^\t]*> [0-9]{1,12} [+-][0-9]{4}(?:\t.*)?)$`)

// parseLog reads the lines of a log, without those that are none and within bounds.
// cut tells that there are more.
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

// shown is a line without what could make a terminal do something.
func shown(line []byte) []byte {
	line = bytes.Clone(line)
	for i, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			line[i] = '?'
		}
	}
	return line
}

// logText writes what parseLog reads.
func logText(entries []logEntry) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		b.WriteString(e.was + " " + e.object + " " + e.rest + "\n")
	}
	return b.Bytes()
}

// readLog reads the newest entries of the log of a ref.
func (r *repository) readLog(ref string) (entries []logEntry, cut bool, err error) {
	raw, cut, err := r.tail("logs/"+ref, maxLog)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if cut { // it begins within a line
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	entries, more := parseLog(raw)
	return entries, cut || more, nil
}

// stashes are the entries of the stash, the oldest first. Its log is the list that
// people see.
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

// logs are those of HEAD and of the branches.
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
