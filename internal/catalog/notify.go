package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
)

// Notified returns a submission with the notifications of the document that is its input, after its own. It returns the
// submission itself if it runs no document, or if the input is none of the workflow document: its execution fails and
// says why. The result follows from the submission alone, so that a repeated submission stays equal, and may pass
// through Notified again.
func Notified(s belay.Submission) (belay.Submission, error) {
	var in Input
	if s.Workflow != Workflow || s.Parent != nil {
		return s, nil
	}
	if err := json.Unmarshal(s.Input, &in); err != nil {
		return s, nil //nolint:nilerr // the execution says what is wrong with its input
	}
	return notified(s, cmp.Or(in.File, "document"), in.Document)
}

// notified adds the notifications of a text. A child has none, since the end of its root is reported.
func notified(s belay.Submission, file, text string) (belay.Submission, error) {
	if s.Parent != nil {
		return s, nil
	}
	more, err := Notifications("submit", file, text)
	if err != nil {
		return s, err
	}
	all := slices.Clip(s.Notify)
	for _, n := range more {
		if !slices.ContainsFunc(all, func(has belay.Notification) bool { return same(&has, &n) }) {
			all = append(all, n)
		}
	}
	if len(all) > belay.MaxNotifications {
		return s, &belay.Error{
			Code: belay.CodeInvalid, Op: "submit", Message: fmt.Sprintf(
				"the submission and its document have %d notifications together; the limit is %d", len(all),
				belay.MaxNotifications),
		}
	}
	s.Notify = all
	return s, nil
}

// Notifications returns the notifications of the text of a document; file names the text in messages.
func Notifications(op, file, text string) ([]belay.Notification, error) {
	all, err := definition.Notifications(file, text)
	if err != nil {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: fmt.Sprintf("the document is wrong: %s", err), Err: err,
		}
	}
	return all, nil
}

// same reports whether two notifications send the same requests.
func same(a, b *belay.Notification) bool {
	format := func(n *belay.Notification) belay.NotificationFormat { return cmp.Or(n.Format, belay.FormatEvent) }
	if a.URL != b.URL || a.Secret != b.Secret || format(a) != format(b) {
		return false
	}
	for _, end := range []belay.State{belay.Failed, belay.Succeeded, belay.Cancelled} {
		if a.Reports(end) != b.Reports(end) {
			return false
		}
	}
	return true
}
