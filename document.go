package belay

import (
	"strconv"
	"strings"
	"time"
)

const (
	// MaxDocument is the largest size of a document, in bytes.
	MaxDocument = 256 << 10
	// MaxDocumentName is the largest length of the name of a document, in bytes.
	MaxDocumentName = 100
	// MaxDocuments is the largest number of stored documents.
	MaxDocuments = 10_000
	// MaxDocumentVersions is the largest number of stored versions of one document. Removed versions
	// do not count.
	MaxDocumentVersions = 1000
	// MaxDocumentTriggers is the largest number of schedules that one document defines, and of webhooks.
	MaxDocumentTriggers = 20
)

// DocumentVersion describes one version of a stored document: a workflow that is written in YAML or
// JSON. A version never changes, except that it can be deprecated, and its number is never given to
// another version, even after the version was removed.
type DocumentVersion struct {
	Name string `json:"name"`
	// Version counts from 1.
	Version int `json:"version"`
	// Hash is the SHA-256 of the text in hexadecimal, and Size the length of the text in bytes.
	Hash string `json:"hash"`
	Size int    `json:"size"`
	// CreatedAt is a time of the store's clock. CreatedBy is the actor who applied the version.
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by,omitempty"`
	// Deprecated is nil unless the version is deprecated.
	Deprecated *Deprecation `json:"deprecated,omitempty"`
}

// String returns the name and the version, as in nightly@3.
func (v DocumentVersion) String() string { return DocumentRef{v.Name, v.Version}.String() }

// Deprecation says since when a version is deprecated, by which actor, and why. At is a time of the
// store's clock.
type Deprecation struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Document is a version with its text.
type Document struct {
	DocumentVersion
	Text string `json:"text"`
}

// DocumentInfo describes a stored document with its newest version.
type DocumentInfo struct {
	Name string `json:"name"`
	// Newest is the version with the highest number, and Default the number of the newest version
	// that is not deprecated: submissions that name no version get it. Default is 0 if all versions
	// are deprecated.
	Newest  DocumentVersion `json:"newest"`
	Default int             `json:"default"`
	// Count is the number of stored versions.
	Count int `json:"count"`
}

// DocumentVersions lists the versions of a stored document, the newest first.
type DocumentVersions struct {
	Name     string            `json:"name"`
	Default  int               `json:"default"`
	Versions []DocumentVersion `json:"versions"`
	// Schedules and Webhooks are the names of those that the document defines, in order. They are those of the text
	// that was applied last.
	Schedules []string `json:"schedules,omitempty"`
	Webhooks  []string `json:"webhooks,omitempty"`
}

// DocumentFilter selects a page of stored documents.
type DocumentFilter struct {
	// Cursor is DocumentPage.Next of the previous page; empty for the first page. Limit is the
	// largest number of documents on the page: 100 if it is 0, and at most 1,000.
	Cursor string
	Limit  int
}

// DocumentPage is a page of stored documents, in the order of the bytes of their names, without
// their texts. A page may have fewer documents than the limit although Next is set. Next is empty on
// the last page.
type DocumentPage struct {
	Documents []DocumentInfo `json:"documents"`
	Next      string         `json:"next,omitempty"`
}

// DocumentApply requests that Text is the newest version of the document Name, and that the schedules and webhooks of
// the document are those that Text defines.
type DocumentApply struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// IfVersion, unless it is 0, makes Library.ApplyDocument return CodeConflict if another version
	// than this one is the newest. IfNew makes it return CodeConflict if the document has a version.
	IfVersion int  `json:"if_version,omitempty"`
	IfNew     bool `json:"if_new,omitempty"`
	// The audit log keeps Actor and Reason. Each has at most MaxName bytes.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Op identifies the operation: a repeated request with the same Op changes nothing. A document
	// remembers the Ops of its last eight changes only.
	Op OpID `json:"op,omitzero"`
}

// DocumentApplied is the answer to a DocumentApply. Created is false if the newest version had the
// same text already. Triggers are the schedules and webhooks that were created, changed or removed.
type DocumentApplied struct {
	DocumentVersion
	Created  bool              `json:"created"`
	Triggers []DocumentTrigger `json:"triggers,omitempty"`
}

// DocumentTrigger is a change of a schedule or webhook that a document defines.
type DocumentTrigger struct {
	Kind   TriggerKind   `json:"kind"`
	Name   string        `json:"name"`
	Change TriggerChange `json:"change"`
}

// TriggerKind is the kind of a DocumentTrigger.
type TriggerKind string

// The kinds of triggers.
const (
	ScheduleKind TriggerKind = "schedule"
	WebhookKind  TriggerKind = "webhook"
)

// TriggerChange says what a DocumentApply does to a schedule or webhook.
type TriggerChange string

// The changes of triggers.
const (
	TriggerCreated TriggerChange = "created"
	TriggerChanged TriggerChange = "changed"
	TriggerRemoved TriggerChange = "removed"
)

// TriggerName returns the name of the schedule or webhook that a document defines under a key. A key has no dots, so
// the names of two documents never are the same.
func TriggerName(document, key string) string { return document + "." + key }

// DocumentAction is an action of an operator on a stored document.
type DocumentAction string

// The actions of operators on stored documents.
const (
	DocumentDeprecate DocumentAction = "deprecate"
	DocumentRestore   DocumentAction = "restore" // ends the deprecation
	DocumentRemove    DocumentAction = "remove"
)

// DocumentChange requests an action on one version of a stored document.
type DocumentChange struct {
	Name   string         `json:"name"`
	Action DocumentAction `json:"action"`
	// Version is the version to change. Only for DocumentRemove it may be 0, for all versions.
	Version int `json:"version"`
	// IfVersion, unless it is 0, makes Library.ChangeDocument return CodeConflict if another version
	// than this one is the newest.
	IfVersion int `json:"if_version,omitempty"`
	// The audit log keeps Actor and Reason. Each has at most MaxName bytes.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Op identifies the operation, as in DocumentApply.
	Op OpID `json:"op,omitzero"`
}

// DocumentRef names a stored document and a version of it. Version 0 stands for the newest version
// that is not deprecated.
type DocumentRef struct {
	Name    string
	Version int
}

// ParseDocumentRef reads NAME or NAME@VERSION. It checks the form only.
func ParseDocumentRef(text string) (DocumentRef, error) {
	name, number, pinned := strings.Cut(text, "@")
	r := DocumentRef{Name: name}
	if !pinned {
		return r, CheckDocumentName("document", name)
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || strconv.Itoa(n) != number {
		return r, &Error{
			Code: CodeInvalid, Op: "document", Message: "a version is a number from 1 after an @, as in nightly@3",
		}
	}
	r.Version = n
	return r, CheckDocumentName("document", name)
}

// String returns what ParseDocumentRef reads.
func (r DocumentRef) String() string {
	if r.Version == 0 {
		return r.Name
	}
	return r.Name + "@" + strconv.Itoa(r.Version)
}

// CheckDocumentName returns CodeInvalid for a text that cannot be the name of a document. A name has
// ASCII letters, digits, dots, dashes and underscores, and begins with a letter or digit, so that it
// can be a part of a URL and of a file name.
func CheckDocumentName(op, name string) error {
	ok := name != "" && len(name) <= MaxDocumentName
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		ok = letter || i > 0 && (c == '.' || c == '-' || c == '_')
	}
	if ok {
		return nil
	}
	return &Error{
		Code: CodeInvalid, Op: op, Message: "the name of a document has letters, digits, dots, dashes and " +
			"underscores, begins with a letter or digit, and has at most " + strconv.Itoa(MaxDocumentName) +
			" characters",
	}
}

// The labels of an execution that was submitted with Submission.Document. The Backend sets them.
const (
	LabelDocument        = "document"
	LabelDocumentVersion = "document_version"
)

// Document returns the document and its version that the execution runs according to its labels, as in
// nightly@3, or "" if its workflow is not the one of documents. A document from a file has no version.
func (e *Execution) Document() string {
	name, version := e.Labels[LabelDocument], e.Labels[LabelDocumentVersion]
	switch {
	case e.Workflow != "document" || name == "":
		return ""
	case version == "":
		return name
	}
	return name + "@" + version
}
