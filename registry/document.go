package registry

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// formatVersion is the version of the state file. A version has changed if an older program would
// lose or misunderstand a part of the file.
const formatVersion = 1

// damagedPrefix begins the name of a copy of a damaged state file; the time follows.
const damagedPrefix = stateName + ".damaged-"

// maxState is the largest state file in bytes; a longer file is damaged.
const maxState = 8 << 20

// document is the content of the state file.
type document struct {
	Version int `json:"version"`
	// ID is chosen when the state file begins, and lost when the file is removed or damaged.
	ID        string     `json:"id,omitempty"`
	Workflows []Workflow `json:"-"`
	Swap      *Marker    `json:"swap_in_progress,omitempty"`
	// Quarantined says that an earlier state file was damaged, so that there may be workflows that
	// are not in Workflows. Until an operator calls Repair, no swap begins.
	Quarantined *Quarantine `json:"quarantined,omitempty"`
}

// stateFile is the JSON form of a document.
type stateFile struct {
	document
	Entries []entry `json:"workflows"`
}

// Quarantine describes a state file that could not be read.
type Quarantine struct {
	// File is the name of the copy in the data directory.
	File string `json:"file"`
	// At is when the damage was found, by the system time.
	At time.Time `json:"at"`
	// Reason says in which way the file is damaged.
	Reason string `json:"reason"`
}

// load reads the state file. A missing file is an empty registry. A file of a newer version is
// refused and left as it is, since newer programs use it; a damaged file is put into quarantine.
func (c *change) load() error {
	c.doc = document{Version: formatVersion}
	f, err := c.dir.open(stateName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return err
	}
	doc, err := decode(data)
	switch {
	case err != nil:
		return c.quarantine(err)
	case doc.Version > formatVersion:
		return &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf(
			"%s has a newer format than %d, the newest that this version of Belay knows: a newer Belay wrote it; use "+
				"the newer version", f.Name(), formatVersion)}
	}
	c.doc = doc
	return nil
}

// decode parses a state file. The error describes damage.
func decode(data []byte) (document, error) {
	if len(data) > maxState {
		return document{}, fmt.Errorf("it is larger than %d bytes", maxState)
	}
	if doc, ok := decodeOwn(data); ok {
		return doc, nil
	}
	return decodeAny(data)
}

// decodeAny parses a state file that any program has written.
func decodeAny(data []byte) (document, error) {
	file := stateFile{document: document{Version: 1}} // programs of others may leave the version out
	err := json.Unmarshal(data, &file)
	switch v := file.Version; {
	case err == nil && v < 1:
		return document{}, fmt.Errorf("it has the version %d", v)
	case err == nil && v > formatVersion, err != nil && newer(data):
		return document{Version: formatVersion + 1}, nil
	case err != nil:
		return document{}, err
	}
	for _, e := range file.Entries {
		file.Workflows = append(file.Workflows, e.workflow())
	}
	return file.document, nil
}

// newer reports whether a file that cannot be decoded has a newer version.
func newer(data []byte) bool {
	var file struct {
		Version int `json:"version"`
	}
	return json.Unmarshal(data, &file) == nil && file.Version > formatVersion
}

// encode returns the JSON form of the document, with a line for each workflow.
func (d *document) encode() ([]byte, error) {
	head, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(head, []byte("}"))
	data = append(data, entriesBegin...)
	for i := range d.Workflows {
		if i > 0 {
			data = append(data, ',')
		}
		if data, err = d.Workflows[i].entry().append(append(data, '\n')); err != nil {
			return nil, err
		}
	}
	return append(data, entriesEnd...), nil
}

// save writes the state file. It refuses a file that load would take for damaged.
func (c *change) save() error {
	if c.doc.ID == "" {
		c.doc.ID = newID()
	}
	data, err := c.doc.encode()
	if err != nil {
		return err
	}
	if len(data) > maxState {
		return &belay.Error{Code: belay.CodeQueueFull, RetryAfter: time.Minute, Message: fmt.Sprintf(
			"%s/%s would have more than %d bytes; remove entries with long names", c.dir.path, stateName, maxState)}
	}
	if err := c.dir.write(stateName, freshName, data); err != nil {
		return err
	}
	c.dirty = false
	return nil
}

// newID returns a random id.
func newID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// maxDamaged is how many copies of damaged state files are kept.
const maxDamaged = 10

// forget removes the oldest copies of damaged state files, so that there is room for one more.
func (c *change) forget() error {
	entries, err := os.ReadDir(c.dir.path)
	if err != nil {
		return err
	}
	var copies []string // ReadDir sorts names, and so the times in them
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), damagedPrefix) {
			copies = append(copies, e.Name())
		}
	}
	for _, name := range copies[:max(0, len(copies)-maxDamaged+1)] {
		if err := c.dir.remove(name); err != nil && !isDirectory(err) {
			return err
		}
	}
	return nil
}

// quarantine keeps a damaged state file under another name, and replaces it by an empty state that
// says so. It always returns an error, so that the caller of this operation learns of the damage.
func (c *change) quarantine(damage error) error {
	name := damagedPrefix + c.wall.UTC().Format("20060102T150405.000000000Z")
	err := c.forget()
	// The file gets a second name and keeps its own, so that a crash leaves no empty registry.
	if err == nil {
		err = c.dir.link(stateName, name)
	}
	if err == nil {
		err = c.dir.sync()
	}
	if err == nil {
		at := c.wall.UTC().Truncate(time.Microsecond)
		c.doc.Quarantined = &Quarantine{File: name, At: at, Reason: damage.Error()}
		err = c.append(Event{Kind: EventQuarantined, Reason: name + ": " + damage.Error()})
	}
	if err == nil {
		err = c.save()
	}
	path := c.dir.path + "/" + stateName
	if err != nil {
		return &belay.Error{Code: belay.CodeConflict, Message: path + " is damaged and cannot be put aside",
			Err: errors.Join(damage, err)}
	}
	return &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf("%s was damaged (%v). It is kept as %s, and "+
		"the registry is empty now: workflows must register again, and no swap begins until you have checked that no "+
		"old workflow runs, and have called: belay registry repair", path, damage, name)}
}

// Repair declares that no workflow of a damaged state file runs any more, so that swaps may begin
// again. It returns the Quarantine, or nil if there was none. The copy of the damaged file stays.
// The error is [belay.CodeSwapInProgress] while the swap whose marker was lost is in progress.
func (r *Registry) Repair(ctx context.Context) (*Quarantine, error) {
	var found *Quarantine
	err := r.locked(ctx, func(c *change) error {
		if found = c.doc.Quarantined; found == nil {
			return nil
		}
		if c.doc.Swap == nil {
			if err := c.unmarked(); err != nil {
				return err
			}
		}
		c.doc.Quarantined, c.dirty = nil, true
		return c.append(Event{Kind: EventRepaired, Reason: found.File})
	})
	return found, wrap("repair the registry", err)
}
