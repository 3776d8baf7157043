package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belaydev/belay/internal/store"
)

// Beside lists the tables whose rows a store deletes together with the execution to which they
// belong.
var Beside = [...]string{
	"specs", "runs", "checkpoints", "signals", "actions", "dead_letters", "blobs", "blob_sums", "places",
}

// Unended are statements that together select the executions that have not ended, or only those
// with an owner. Each uses an index that contains only such rows.
func Unended(owned bool) []string {
	all := []string{
		"SELECT id FROM executions WHERE worker IS NOT NULL", "SELECT id FROM executions WHERE ready_at IS NOT NULL",
		"SELECT id FROM executions WHERE ready_at IS NULL AND worker IS NULL AND state < 6",
	}
	if owned {
		return all[:1]
	}
	return all
}

// Conditions returns the condition of a list, for a statement that names the execution e. place
// adds an argument (an id or a text) and returns its placeholder in the statement. failed returns the
// condition that the message of an error contains a text without the letters A to Z, and label the
// condition that an execution has a label.
func Conditions(q *store.List, place func(any) string, failed func(text string) string,
	label func(key, value string) string) string {
	var all []string
	add := func(condition string) { all = append(all, condition) }
	switch {
	case !q.Parent.IsZero():
		add("e.parent = " + place(q.Parent))
	case !q.Children:
		add("e.parent IS NULL")
	}
	if !q.Before.IsZero() {
		add("e.id < " + place(q.Before))
	}
	if len(q.States) > 0 {
		numbers := make([]string, len(q.States))
		for i, s := range q.States {
			numbers[i] = fmt.Sprint(uint8(s))
		}
		add("e.state IN (" + strings.Join(numbers, ", ") + ")")
	}
	if q.Workflow != "" {
		add("e.workflow = " + place(q.Workflow))
	}
	if q.Queue != "" {
		add("e.queue = " + place(q.Queue))
	}
	if q.Error != "" {
		add(failed(place(store.Lower(q.Error))))
	}
	for _, k := range slices.Sorted(maps.Keys(q.Labels)) {
		add(label(k, q.Labels[k]))
	}
	if len(all) == 0 {
		return "true"
	}
	return strings.Join(all, " AND ")
}

// Filtered are the columns of executions that Conditions names.
const Filtered = "id, parent, state, workflow, queue, message"

// Newest returns a statement that selects all executions, or the children of a parent, newest
// first.
func Newest(q *store.List, place func(any) string) string {
	condition := "true"
	if !q.Parent.IsZero() {
		condition = "parent = " + place(q.Parent)
	}
	if !q.Before.IsZero() {
		condition += " AND id < " + place(q.Before)
	}
	return " FROM executions WHERE " + condition + " ORDER BY id DESC"
}

// Clip returns the beginning of a statement, for the texts of errors.
func Clip(text string) string {
	line := strings.Join(strings.Fields(text), " ")
	if len(line) > 60 {
		line = line[:60] + "…"
	}
	return line
}
