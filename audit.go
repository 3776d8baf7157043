package belay

import "time"

// AuditEntry is an action on something other than an execution, or an action of an operator on an execution, as the
// audit keeps it. The audit keeps it for ever, even if the object or the execution is deleted.
type AuditEntry struct {
	At time.Time `json:"at"`
	// Actor is the person or program that acted: the name of its API key, or "belay" for Belay itself. It is
	// empty if the caller named none.
	Actor  string `json:"actor,omitempty"`
	Action string `json:"action"`
	// Kind is one of AuditKinds.
	Kind string `json:"kind"`
	// Name names the object within its kind: the id of a key, an execution or a gate, or a name. The name of a dead
	// letter is the id of its execution, a point, and the generation that failed.
	Name string `json:"name"`
	// Version is the version of the object after the action; of an execution it is the seq of the action.
	Version int64  `json:"version"`
	Reason  string `json:"reason,omitempty"`
}

// AuditKinds are the kinds of objects in the audit.
var AuditKinds = []string{
	"dead_letter", "document", "execution", "gate", "key", "notification_targets", "schedule", "webhook",
}

// AuditFilter selects entries of the audit. Empty fields select all.
type AuditFilter struct {
	Actor, Action string
	// Kind is one of AuditKinds, and Name the name of an object of this kind.
	Kind, Name string
	// Since and Until bound the time of the action, by the store's clock: Since ≤ At < Until.
	Since, Until time.Time
	// Cursor is the Next of the previous page, empty for the first page.
	Cursor string
	// Limit is the largest number of entries on the page: 100 if it is 0, and never more than 1,000.
	Limit int
}

// AuditPage is one page of the audit, the newest entry first.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	// Next is the Cursor for the next page, empty on the last page. A page may have fewer entries than the limit, or
	// none, although further pages have some: one call examines 10,000 entries at most.
	Next string `json:"next,omitempty"`
}
