package definition

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	"github.com/belaydev/belay"
)

// Document is a valid document.
type Document struct {
	Name, Description string
	// Hash is the SHA-256 of the text of the document, in hexadecimal.
	Hash         string
	Input        *Schema
	Tasks        []*Task
	Output       *Template
	OutputSchema *Schema
	// On are the triggers of the document when it is stored.
	On *Triggers
	// Notify are the notifications of each execution of the document.
	Notify []belay.Notification
	byID   map[string]*Task
}

// Task returns the task with the id; nil if there is none.
func (d *Document) Task(id string) *Task { return d.byID[id] }

// Task is one task of a document.
type Task struct {
	ID, Description string
	// Number is the number of the task in the document, from 0.
	Number int
	Uses   string
	// Kind is the built-in kind of the task; nil if Uses is the name of a workflow.
	Kind    *Kind
	With    *Template
	Needs   []string
	If      *Program
	Foreach *Template
	// Parallel is how many items of a foreach are under way at the same time.
	Parallel     int
	Retry        Retry
	Timeout      belay.Duration
	Target       string
	Concurrency  *belay.Concurrency
	Requires     *belay.Requires
	Queue        string
	WorkerLabels map[string]string
	OnFailure    OnFailure
	Outputs      *Template
	// Undoes says that the task runs only if an on_failure names it, to undo the work of the task that it needs.
	Undoes bool
	// NeededBy are the tasks that need this task.
	NeededBy []string

	node *node
}

// Retry says how often a task is tried again. The zero values stand for the defaults of belay.Policy.
type Retry struct {
	Attempts   int
	Backoff    belay.Duration
	MaxBackoff belay.Duration
}

// Reaction is the reaction to the failure of a task.
type Reaction string

// The reactions.
const (
	Fail       Reaction = "fail"
	Continue   Reaction = "continue"
	Quarantine Reaction = "quarantine"
	Compensate Reaction = "compensate"
)

// OnFailure is the reaction to the failure of a task, with the tasks that compensate.
type OnFailure struct {
	Reaction   Reaction
	Compensate []string
}

// Parse reads and validates a document. It returns all problems that it finds, in the order of their positions; the
// document is nil if there is one. file names the document in the problems.
func Parse(file string, text []byte) (*Document, Problems) {
	r := &report{file: file, words: documentWords}
	n := parse(text, r)
	if n == nil || len(r.list) > 0 {
		return nil, r.sorted()
	}
	if n.kind != mapNode {
		r.add(n.at, `begin with "name:" and "tasks:"`, "a document must be a map, not %s", n.kind)
		return nil, r.sorted()
	}
	d := r.document(n)
	if len(r.list) > 0 {
		return nil, r.sorted()
	}
	d.Hash = Hash(text)
	return d, nil
}

// Hash returns the hash of the text of a document.
func Hash(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:])
}

// IsFile reports whether an argument of a command line looks like the name of a document's file.
func IsFile(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
