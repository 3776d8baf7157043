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
	// endpoint that answers slowly does not use all requests of a server, which are 20 by default.
	deliveriesAtOnce = 5
	// publishesAtOnce is how many deliveries to one exchange are under way at the same time: RabbitMQ answers fast.
	publishesAtOnce = 20
	// deliveryTimeout is the timeout of one attempt, and deliveryAnswer the size up to which its answer is
	// kept, in bytes.
	deliveryTimeout = 15 * time.Second
	deliveryAnswer  = 4 << 10
	// maxNotified is the largest size of a message of a failure in a notification, in bytes.
	maxNotified = 1 << 10
)

// deliveryID is the refusal of an id that only the rules give.
const deliveryID = "the id has the form of the ids that Belay makes for notifications; choose another id"

// publishInput is the refusal of another input for a delivery to an exchange.
const publishInput = "only the target decides what is published and where; retry the delivery without another input"

// forDelivery reports whether a name is one that Belay makes for deliveries.
func forDelivery(name string) bool { return strings.HasPrefix(name, belay.NotificationPrefix) }

// notify submits the deliveries of an execution that has just ended, in the same commit: to the notifications of its
// submission, and to the targets of operators. The ids follow from the execution, its generation, and the index of the
// notification or the name of the target, and no other submission may have such an id, so each end has one delivery for
// each of them (guarantee G19). Deliveries have no notifications themselves.
func (w *world) notify(e *Execution) {
	for i := range e.Notify {
		n := &e.Notify[i]
		if n.Reports(e.State) {
			w.deliverNews(&news{
				to: belay.NotificationTarget{Notification: *n}, id: belay.NotificationID(e.ID, e.Generation, i),
				key: fmt.Sprintf("%s:%d:%d", e.ID, e.Generation, i), label: e.ID.String(),
				payload: belay.NotificationPayload{
					Execution: e.ID, Generation: e.Generation, State: e.State, Target: i,
				},
				event: eventOf(e), text: slackText(e),
			})
		}
	}
	w.notifyTargets(e)
}

// news is a delivery: the request, or the message, that reports something to a receiver.
type news struct {
	to      belay.NotificationTarget // without a name for a notification of a submission
	id      belay.ExecutionID
	key     string // the idempotency key, without the prefix
	label   string // the value of the label belay.LabelNotification; empty for none
	payload any    // the trigger payload
	event   any    // the body in belay.FormatEvent
	text    string // the text in belay.FormatSlack
	actor   string
}

// deliverNews submits a delivery. The check of a submission, or of a target, has refused all notifications whose
// delivery could be refused. An execution must be able to end in any case, so an error is no reason to refuse its end.
func (w *world) deliverNews(n *news) bool {
	c, err := n.submission()
	if err == nil {
		_, err = c.apply(w)
	}
	return err == nil
}

// submission is the submission of a delivery. It locks no gate; a claim applies the limit of the endpoint.
func (n *news) submission() (*Submit, error) {
	input, err := deliveryInput(n)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(n.payload)
	if err != nil {
		return nil, err
	}
	endpoint, labels := n.to.Endpoint(), make(map[string]string, 2)
	workflow, atOnce := belay.NotificationWorkflow, deliveriesAtOnce
	if n.to.Exchange != "" {
		workflow, atOnce = belay.PublishWorkflow, publishesAtOnce
	}
	if n.label != "" {
		labels[belay.LabelNotification] = n.label
	}
	if n.to.Name != "" {
		labels[belay.LabelNotificationTarget] = n.to.Name
	}
	setDefault(&n.actor, "notification")
	return &Submit{delivers: true, Joined: true, Submission: belay.Submission{
		ID: n.id, Workflow: workflow, Input: input, Trigger: belay.TriggerNotification,
		TriggerPayload: payload, Actor: n.actor, IdempotencyKey: belay.NotificationPrefix + n.key, Labels: labels,
		Policy: belay.Policy{
			MaxAttempts: deliveryAttempts, BackoffBase: belay.Duration(deliveryBackoff),
			BackoffCap: belay.Duration(deliveryBackoffCap),
		},
		Gates: belay.Gates{
			Target: endpoint, Concurrency: &belay.Concurrency{Name: endpoint, Max: atOnce},
		},
	}}, nil
}

// DeliverySample is a submission like those of the deliveries of a notification. A caller who may not submit it must
// not submit the notification either, because the deliveries are not checked again.
func DeliverySample(n *belay.Notification) (belay.Submission, error) {
	return TargetSample(&belay.NotificationTarget{Notification: *n})
}

// TargetSample is DeliverySample for a target of operators.
func TargetSample(t *belay.NotificationTarget) (belay.Submission, error) {
	e := &Execution{State: belay.Failed}
	s, err := (&news{to: *t, event: eventOf(e), text: slackText(e)}).submission()
	if err != nil {
		return belay.Submission{}, err
	}
	return belay.Submission{Workflow: s.Workflow, Input: s.Input}, nil
}

// deliveryInput is the input of a delivery, for the built-in workflow of HTTP requests or for that of messages.
func deliveryInput(n *news) (json.RawMessage, error) {
	body := n.event
	if n.to.Exchange != "" {
		return json.Marshal(struct {
			Exchange   string `json:"exchange"`
			RoutingKey string `json:"routing_key,omitempty"`
			Target     string `json:"target"`
			Body       any    `json:"body"`
		}{n.to.Exchange, n.to.RoutingKey, n.to.Name, body})
	}
	if n.to.Format == belay.FormatSlack {
		body = map[string]string{"text": n.text}
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
	}{"POST", n.to.URL, body, n.to.Secret, belay.Duration(deliveryTimeout), deliveryAnswer, 0})
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
