package belay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxNotificationTargets is the largest number of targets of notifications.
	MaxNotificationTargets = 50
	// MaxTargetBytes is the largest size of a target of notifications as JSON, in bytes.
	MaxTargetBytes = 8 << 10
	// MaxTargetPatterns is the largest number of workflows, and of queues, that one target names.
	MaxTargetPatterns = 20
	// MaxExchangeName is the largest size of the name of an exchange, and of a routing key, in bytes.
	MaxExchangeName = 255
	// PublishWorkflow is the workflow of deliveries to exchanges, a built-in workflow. No submission can name it, and
	// the input of such a delivery never changes: only operators decide to which exchanges Belay publishes.
	PublishWorkflow = "belay.publish"
	// CompletedEvent is the type of a message about the end of an execution, and its routing key unless the target has
	// another one.
	CompletedEvent = "execution.completed"
)

// LabelNotificationTarget is the label of a delivery to a target of notifications. Its value is the name of the target.
const LabelNotificationTarget = "notification_target"

// NotificationTarget asks for an HTTP request, or for a message to an exchange of RabbitMQ, at the end of each
// execution that it selects, and for each alert that it names. An operator sets it. The Backend matches an end with a
// list of the targets that is at most a second old, and creates the delivery in the commit that ends the execution; see
// Notification. Children and deliveries are never matched.
type NotificationTarget struct {
	// Name follows the rules of CheckTargetName.
	Name string `json:"name"`
	// Notification says where the requests go. An empty On means no end if there are Alerts; otherwise it means
	// Failed, or each end if there is an Exchange.
	Notification
	// Exchange is the exchange to which the messages go; the target has no URL and no Secret then. Its owner declares
	// it, and not Belay. A delivery is an execution of PublishWorkflow. The body of a message is the body of an HTTP
	// request in FormatEvent.
	Exchange string `json:"exchange,omitempty"`
	// RoutingKey is the routing key of the messages. Empty means CompletedEvent for ends, and "alert." and the alert
	// for alerts.
	RoutingKey string `json:"routing_key,omitempty"`
	// Workflows and Queues select executions. A name may contain asterisks, which stand for any text. Empty means all.
	Workflows []string `json:"workflows,omitempty"`
	Queues    []string `json:"queues,omitempty"`
	// Labels are labels that an execution must have.
	Labels map[string]string `json:"labels,omitempty"`
	// Alerts are the alerts that the target gets. Workflows selects alerts about dead letters and lanes, and Queues
	// alerts about lanes; the other alerts and fields do not depend on each other.
	Alerts []Alert `json:"alerts,omitempty"`
}

// Alert is something that an operator may want to know at once. Alerts that arise within seconds are sent together.
type Alert string

// The values of Alert.
const (
	// AlertDeadLetter: an execution has failed for good and left a dead letter. Deliveries raise no alert.
	AlertDeadLetter Alert = "dead_letter"
	// AlertBreakerOpen: the circuit breaker of a target has opened by itself. Deliveries raise no alert.
	AlertBreakerOpen Alert = "breaker_open"
	// AlertNoWorker: executions of a lane have been due for at least NoWorkerAlertAfter, and meanwhile no worker that
	// could take them was connected.
	AlertNoWorker Alert = "no_worker"
	// AlertTest is what NotificationTargetTest sends. No target names it.
	AlertTest Alert = "test"
)

// Alerts are the alerts that a target can name.
var Alerts = []Alert{AlertDeadLetter, AlertBreakerOpen, AlertNoWorker}

// NoWorkerAlertAfter is how long a lane is without a worker before AlertNoWorker.
const NoWorkerAlertAfter = 30 * time.Second

// MaxAlertItems is how many dead letters, circuit breakers or lanes one AlertEvent describes.
const MaxAlertItems = 20

// Reports reports whether the target wants to know of ends in this state.
func (t *NotificationTarget) Reports(s State) bool {
	switch {
	case len(t.On) > 0:
		return slices.Contains(t.On, s)
	case len(t.Alerts) > 0:
		return false
	case t.Exchange != "":
		return s.Terminal() && s <= Cancelled
	}
	return t.Notification.Reports(s)
}

// Endpoint returns the name of the receiver, for its circuit breaker and its limit.
func (t *NotificationTarget) Endpoint() string {
	if t.Exchange == "" {
		return t.Notification.Endpoint()
	}
	sum := sha256.Sum256([]byte("exchange " + t.Exchange))
	return NotificationPrefix + "exchange:" + strings.ToValidUTF8(t.Exchange[:min(len(t.Exchange), 120)], "") + ":" +
		hex.EncodeToString(sum[:8])
}

// AlertEvent is the body of an alert in FormatEvent, in the form of Standard Webhooks.
type AlertEvent struct {
	// Type is "alert." and the alert, as in alert.no_worker.
	Type string `json:"type"`
	// Timestamp is when the Backend raised the alert, by the store's clock.
	Timestamp time.Time `json:"timestamp"`
	Data      AlertData `json:"data"`
}

// AlertData describes what an alert is about: in one of the lists, except in a test.
type AlertData struct {
	// Name is the name of the NotificationTarget that gets the alert.
	Name string `json:"name"`
	// Text describes the alert in a line for people.
	Text string `json:"text"`
	// Count is the number of dead letters, circuit breakers or lanes. The lists have MaxAlertItems of them at most.
	Count       int            `json:"count"`
	DeadLetters []AlertLetter  `json:"dead_letters,omitempty"`
	Breakers    []AlertBreaker `json:"breakers,omitempty"`
	Lanes       []AlertLane    `json:"lanes,omitempty"`
}

// AlertLetter is a dead letter in an alert. Its Message has at most 200 bytes.
type AlertLetter struct {
	Execution  ExecutionID `json:"execution"`
	Generation int         `json:"generation"`
	Workflow   string      `json:"workflow"`
	Reason     string      `json:"reason"`
	Class      Class       `json:"class"`
	Message    string      `json:"message"`
	At         time.Time   `json:"at"`
}

// AlertBreaker is the circuit breaker of a target, an external service that runs call.
type AlertBreaker struct {
	Target      string    `json:"target"`
	OpenedAt    time.Time `json:"opened_at"`
	NextRetryAt time.Time `json:"next_retry_at,omitzero"`
}

// AlertLane is a group of due executions that the same workers may claim.
type AlertLane struct {
	Queue    string            `json:"queue"`
	Workflow string            `json:"workflow"`
	Version  string            `json:"version,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"` // labels that a worker must have
	DueSince time.Time         `json:"due_since"`        // of the execution that has waited longest
	Oldest   ExecutionID       `json:"oldest"`           // that execution
}

// AlertPayload is the trigger payload of a delivery of an alert.
type AlertPayload struct {
	Alert Alert  `json:"alert"`
	Name  string `json:"name"` // of the NotificationTarget
	Count int    `json:"count,omitempty"`
}

// NotificationPause says since when a target is paused, by which actor, and why.
type NotificationPause struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// NotificationTargetInfo is a target with its state.
type NotificationTargetInfo struct {
	NotificationTarget
	// Version counts the changes of the target by operators, from 1.
	Version int `json:"version"`
	// Paused is set while the target gets nothing. Nothing of this time is sent later.
	Paused    *NotificationPause `json:"paused,omitempty"`
	CreatedAt time.Time          `json:"created_at"`
	UpdatedAt time.Time          `json:"updated_at"`
	UpdatedBy string             `json:"updated_by,omitempty"`
}

// NotificationTargetPut requests that the target with NotificationTarget.Name is as NotificationTarget says. Its other
// fields are those of SchedulePut.
type NotificationTargetPut struct {
	NotificationTarget
	IfVersion int    `json:"if_version,omitempty"`
	IfNew     bool   `json:"if_new,omitempty"`
	Actor     string `json:"actor,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Op        OpID   `json:"op,omitzero"`
}

// NotificationTargetPutResult is the answer to a NotificationTargetPut, as SchedulePutResult is to a SchedulePut.
type NotificationTargetPutResult struct {
	NotificationTargetInfo
	Created bool `json:"created,omitempty"`
	Changed bool `json:"changed"`
}

// NotificationTargetAction is an action of an operator on a target of notifications.
type NotificationTargetAction string

// The actions of operators on targets of notifications.
const (
	NotificationTargetPause  NotificationTargetAction = "pause"
	NotificationTargetResume NotificationTargetAction = "resume"
	NotificationTargetRemove NotificationTargetAction = "remove" // deliveries that were created go on
)

// NotificationTargetChange requests an action on a target. Its fields are those of a ScheduleChange.
type NotificationTargetChange struct {
	Name      string                   `json:"name"`
	Action    NotificationTargetAction `json:"action"`
	IfVersion int                      `json:"if_version,omitempty"`
	Actor     string                   `json:"actor,omitempty"`
	Reason    string                   `json:"reason,omitempty"`
	Op        OpID                     `json:"op,omitzero"`
}

// NotificationTargetTest requests a delivery that only shows whether the target receives it. A repeated request with
// the same Op sends nothing more. A paused target gets it too.
type NotificationTargetTest struct {
	Name  string `json:"name"`
	Actor string `json:"actor,omitempty"`
	Op    OpID   `json:"op,omitzero"`
}

// CheckTargetName returns CodeInvalid for a text that cannot be the name of a target of notifications. The rules are
// those of CheckDocumentName.
func CheckTargetName(op, name string) error {
	if CheckDocumentName(op, name) == nil {
		return nil
	}
	return notificationError(op, fmt.Sprintf("the name of a target has letters, digits, dots, dashes and underscores, "+
		"begins with a letter or digit, and has at most %d characters", MaxDocumentName))
}

// CheckNotificationTarget returns an error if an operator cannot set this target. It does not check labels, and not
// whether the host may be reached. The error contains no part of a URL.
func CheckNotificationTarget(op string, t *NotificationTarget) error {
	if err := CheckTargetName(op, t.Name); err != nil {
		return err
	}
	what := t.wrongExchange()
	if t.Exchange == "" && what == "" {
		what = t.wrong()
	}
	if what != "" {
		return notificationError(op, what)
	}
	for _, list := range []struct {
		what     string
		patterns []string
	}{{"workflows", t.Workflows}, {"queues", t.Queues}} {
		if n := len(list.patterns); n > MaxTargetPatterns {
			return notificationError(op, fmt.Sprintf("there are %d %s; the limit is %d", n, list.what,
				MaxTargetPatterns))
		}
		for _, p := range list.patterns {
			if p == "" || len(p) > MaxName || strings.Count(p, "*") > maxAsterisks {
				return notificationError(op, fmt.Sprintf("%s has a name that is empty, longer than %d bytes, or has "+
					"more than %d asterisks", list.what, MaxName, maxAsterisks))
			}
		}
	}
	for i, a := range t.Alerts {
		if !slices.Contains(Alerts, a) {
			return notificationError(op, fmt.Sprintf("there is no alert %q; alerts can be %s, %s and %s",
				clipped(string(a)), AlertDeadLetter, AlertBreakerOpen, AlertNoWorker))
		}
		if slices.Contains(t.Alerts[:i], a) {
			return notificationError(op, fmt.Sprintf("alerts has %s twice", a))
		}
	}
	return nil
}

// maxAsterisks is the largest number of asterisks in a pattern of a target.
const maxAsterisks = 4

// wrongExchange describes the first error of a target that names an exchange; it is empty if there is none.
func (t *NotificationTarget) wrongExchange() string {
	switch {
	case t.Exchange == "" && t.RoutingKey != "":
		return "there is a routing key without an exchange"
	case t.Exchange == "":
		return ""
	case t.URL != "":
		return "give a url or an exchange, not both"
	case t.Format != "" && t.Format != FormatEvent:
		return "a message to an exchange has the format event"
	case t.Secret != "":
		return "a message to an exchange is not signed; leave out the secret"
	}
	for _, name := range []struct{ what, text string }{{"exchange", t.Exchange}, {"routing_key", t.RoutingKey}} {
		switch {
		case len(name.text) > MaxExchangeName:
			return fmt.Sprintf("the %s has %d bytes; the limit is %d", name.what, len(name.text), MaxExchangeName)
		case !utf8.ValidString(name.text) || strings.ContainsFunc(name.text, unicode.IsControl):
			return "the " + name.what + " has a control character or invalid UTF-8"
		case strings.Contains(name.text, "${{"):
			return "the " + name.what + " cannot refer to a secret, since RabbitMQ shows it"
		}
	}
	return t.endsWrong()
}
