package webui

import (
	"strings"

	"github.com/belaydev/belay"
)

// newsOf describes a delivery of a notification by what a row of a list has: the name for the row, and what the
// notification reports. Both are empty for other executions, and for a delivery that does not say what it reports. Only
// the Backend sets the trigger of deliveries and keys that begin with belay.NotificationPrefix.
func newsOf(e *belay.Execution) (name string, reports []span) {
	if e.Trigger != belay.TriggerNotification {
		return "", nil
	}
	switch of, alert := e.Labels[belay.LabelNotification], alertOf(e.Key); {
	case of != "":
		reports = spans("reports the end of " + excerpt(of, 60))
	case alert == string(belay.AlertTest):
		reports = spans("is a test")
	case alert != "":
		reports = []span{{Text: "reports the alert " + strings.ReplaceAll(excerpt(alert, 40), "_", " ")}}
	default:
		return "", nil
	}
	name = "notification"
	if target := e.Labels[belay.LabelNotificationTarget]; target != "" {
		name += " to " + excerpt(target, 60)
	}
	return name, reports
}

// alertOf returns the kind of the alert that the idempotency key of a delivery names; empty if it names none.
func alertOf(key string) string {
	rest, ok := strings.CutPrefix(key, belay.NotificationPrefix+"alert:")
	kind, _, named := strings.Cut(rest, ":")
	if !ok || !named {
		return ""
	}
	return kind
}
