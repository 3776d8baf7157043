package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// The terms of deliveries (executions that report the end of another execution by an HTTP request).
const (
	// deliveryAttempts is the number of attempts of a delivery. With the backoff, which doubles from
	// deliveryBackoff to deliveryBackoffCap, they span about 20 minutes.
	deliveryAttempts   = 10
	deliveryBackoff    = 5 * time.Second
	deliveryBackoffCap = 5 * time.Minute
	// deliveriesAtOnce is how many deliveries to one endpoint are under way at the same time, so that an
	// endpoint that answers slowly does not use all requests of a server.
	deliveriesAtOnce = 10
	// deliveryTimeout is the timeout of one attempt, and deliveryAnswer the size up to which its answer is
	// kept, in bytes.
	deliveryTimeout = 15 * time.Second
	deliveryAnswer  = 4 << 10
	// maxNotified is the largest size of a message of a failure in a notification, in bytes.
	maxNotified = 1 << 10
)

// deliveryID is the refusal of an id that only the rules give.
const deliveryID = "the id has the form of the ids that Belay makes for notifications; choose another id"

// forDelivery reports whether a name is one that Belay makes for deliveries.
func forDelivery(name string) bool { return strings.HasPrefix(name, belay.NotificationPrefix) }

// notify submits the deliveries of an execution that has just ended, in the same commit. Their ids follow from the
// execution, its generation and the index of the notification, and no other submission may have such an id, so each
// end has one delivery for each of its notifications (guarantee G19). Deliveries have no notifications themselves.
func (w *world) notify(e *Execution) {
	for i := range e.Notify {
		if !e.Notify[i].Reports(e.State) {
			continue
		}
		if c, err := e.delivery(i); err == nil {
			// The check of the submission has refused all notifications whose delivery could be refused. An
			// execution must be able to end in any case, so an error is no reason to refuse its end.
			_, _ = c.apply(w)
		}
	}
}

// delivery is the submission of the delivery that reports the end of the execution to one of its notifications. It
// locks no gate; a claim applies the limit of the endpoint.
func (e *Execution) delivery(i int) (*Submit, error) {
	n := &e.Notify[i]
	input, err := deliveryInput(n, e)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(belay.NotificationPayload{
		Execution: e.ID, Generation: e.Generation, State: e.State, Target: i,
	})
	if err != nil {
		return nil, err
	}
	endpoint := n.Endpoint()
	return &Submit{delivers: true, Joined: true, Submission: belay.Submission{
		ID:       belay.NotificationID(e.ID, e.Generation, i),
		Workflow: belay.NotificationWorkflow, Input: input,
		Trigger: belay.TriggerNotification, TriggerPayload: payload, Actor: "notification",
		IdempotencyKey: fmt.Sprintf("%s%s:%d:%d", belay.NotificationPrefix, e.ID, e.Generation, i),
		Labels:         map[string]string{belay.LabelNotification: e.ID.String()},
		Policy: belay.Policy{
			MaxAttempts: deliveryAttempts, BackoffBase: belay.Duration(deliveryBackoff),
			BackoffCap: belay.Duration(deliveryBackoffCap),
		},
		Gates: belay.Gates{
			Target: endpoint, Concurrency: &belay.Concurrency{Name: endpoint, Max: deliveriesAtOnce},
		},
	}}, nil
}

// DeliverySample is a submission like those of the deliveries of a notification. A caller who may not submit it must
// not submit the notification either, because the deliveries are not checked again.
func DeliverySample(n *belay.Notification) (belay.Submission, error) {
	input, err := deliveryInput(n, &Execution{State: belay.Failed})
	return belay.Submission{Workflow: belay.NotificationWorkflow, Input: input}, err
}

// deliveryInput is the input of a delivery, for the built-in workflow of HTTP requests.
func deliveryInput(n *belay.Notification, e *Execution) (json.RawMessage, error) {
	body := any(eventOf(e))
	if n.Format == belay.FormatSlack {
		body = map[string]string{"text": slackText(e)}
	}
	// A redirect is an answer, and not followed: it would send the notification to a host that the submission does
	// not name.
	return json.Marshal(struct {
		Method    string         `json:"method"`
		URL       string         `json:"url"`
		Body      any            `json:"body"`
		Secret    string         `json:"signing_secret,omitempty"`
		Timeout   belay.Duration `json:"timeout"`
		Answer    int            `json:"max_response_bytes"`
		Redirects int            `json:"max_redirects"`
	}{"POST", n.URL, body, n.Secret, belay.Duration(deliveryTimeout), deliveryAnswer, 0})
}

func eventOf(e *Execution) belay.NotificationEvent {
	ev := belay.NotificationEvent{
		Type: "execution." + e.State.String(), Timestamp: e.FinishedAt.Time(),
		Data: belay.NotificationData{
			ID: e.ID, Workflow: e.Workflow, Version: e.Version, Queue: e.Queue, State: e.State,
			Generation: e.Generation, CreatedAt: e.CreatedAt.Time(), StartedAt: e.StartedAt.Time(),
			FinishedAt: e.FinishedAt.Time(),
		},
	}
	if e.Class != 0 {
		ev.Data.Error = &belay.Failure{Class: e.Class, Message: clip(e.Message, maxNotified), FailedBy: e.FailedBy}
	}
	return ev
}

// slackText describes the end of an execution in one or two lines.
func slackText(e *Execution) string {
	text := fmt.Sprintf("%s %s: %s", e.Workflow, e.State, e.ID)
	if e.Generation > 1 {
		text += fmt.Sprintf(" (generation %d)", e.Generation)
	}
	if e.Class != 0 {
		text += "\n" + clip(e.Message, maxNotified)
	}
	return slackEscape.Replace(text)
}

// slackEscape escapes the characters with which Slack marks links and mentions, because messages come from workers.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// NotifyText encodes notifications in the form that stores keep; empty for none.
func NotifyText(all []belay.Notification) []byte {
	if len(all) == 0 {
		return nil
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // texts and states can always be encoded
	}
	return b
}
