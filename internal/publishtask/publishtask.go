package publishtask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/run"
	"github.com/belaydev/belay/workflow"
)

const (
	// maxEarlier is the largest number of earlier ends for which a delivery looks.
	maxEarlier = 1000
	// firstWait is how long a delivery waits for an earlier one that is under way. The wait doubles up to lastWait.
	firstWait = time.Second
	lastWait  = 5 * time.Minute
)

// Exchanges publishes messages; *broker.Exchanges is one.
type Exchanges interface {
	Check(exchange string) error
	Publish(ctx context.Context, exchange, key string, e *broker.Event) error
}

// Publisher runs the deliveries to exchanges. It is safe for concurrent use.
type Publisher struct {
	exchanges Exchanges
	backend   func() belay.Backend
}

// New makes a Publisher. backend returns the Backend that has the deliveries; the Publisher calls it in runs only.
func New(x Exchanges, backend func() belay.Backend) *Publisher { return &Publisher{x, backend} }

// Published is the output of a delivery.
type Published struct {
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
	MessageID  string `json:"message_id"`
}

// request is the input of a delivery, which the rules make.
type request struct {
	Exchange   string          `json:"exchange"`
	RoutingKey string          `json:"routing_key,omitempty"`
	Target     string          `json:"target"`
	Body       json.RawMessage `json:"body"`

	event event
}

// event is the part of the body that every message has: a belay.NotificationEvent or a belay.AlertEvent.
type event struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		ID         belay.ExecutionID `json:"id"`
		Workflow   string            `json:"workflow"`
		Queue      string            `json:"queue"`
		State      belay.State       `json:"state"`
		Generation int               `json:"generation"`
	} `json:"data"`
}

func decode(input json.RawMessage) (*request, error) {
	in := new(request)
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	err := d.Decode(in)
	if err == nil {
		err = json.Unmarshal(in.Body, &in.event)
	}
	if err != nil {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Message: "the input is not one that Belay makes: " + err.Error(),
		}
	}
	return in, nil
}

// Admit returns an error for a delivery, and for a sample of the deliveries of a target, whose exchange is refused.
func (p *Publisher) Admit(x *belay.Submission) error {
	in, err := decode(x.Input)
	if err != nil {
		return err
	}
	return p.exchanges.Check(in.Exchange)
}

// Run is the workflow function: it publishes the message of a delivery.
func (p *Publisher) Run(ctx context.Context, input json.RawMessage) (any, error) {
	id := run.From(ctx).Assignment().Lease.Execution
	if !belay.IsNotificationID(id) {
		return nil, belay.Permanent(&belay.Error{Code: belay.CodeForbidden,
			Message: "only Belay itself publishes messages, for the targets that operators set (`belay notify set`)"})
	}
	in, err := decode(input)
	if err != nil {
		return nil, belay.Permanent(err)
	}
	if err := p.await(ctx, in); err != nil {
		return nil, err
	}
	m, key := in.message(id)
	if err := workflow.Guard(ctx); err != nil {
		return nil, err
	}
	if err := p.exchanges.Publish(ctx, in.Exchange, key, m); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("publish to the exchange %q: %w", in.Exchange, cause)
		}
		return nil, err
	}
	return Published{in.Exchange, key, m.ID}, nil
}

// isEnd reports whether the delivery reports the end of an execution, and not an alert.
func (in *request) isEnd() bool { return !in.event.Data.ID.IsZero() }

// message returns the message and its routing key.
func (in *request) message(id belay.ExecutionID) (m *broker.Event, key string) {
	e := &in.event
	m = &broker.Event{ID: id.String(), Type: e.Type, At: e.Timestamp, Body: in.Body}
	m.Headers = map[string]any{"target": in.Target}
	if in.isEnd() {
		m.Type = belay.CompletedEvent
		m.Headers["execution"], m.Headers["workflow"] = e.Data.ID.String(), e.Data.Workflow
		m.Headers["queue"], m.Headers["state"] = e.Data.Queue, e.Data.State.String()
		m.Headers["sequence"] = int64(e.Data.Generation)
	} else {
		m.Headers["alert"] = strings.TrimPrefix(e.Type, "alert.")
	}
	if key = in.RoutingKey; key == "" {
		key = m.Type
	}
	return m, key
}

// await waits until the deliveries of earlier ends of the execution to the same target have ended.
func (p *Publisher) await(ctx context.Context, in *request) error {
	d := &in.event.Data
	if !in.isEnd() || d.Generation < 2 {
		return nil
	}
	var earlier []belay.ExecutionID
	for g := max(1, d.Generation-maxEarlier); g < d.Generation; g++ {
		earlier = append(earlier, belay.TargetNotificationID(d.ID, g, in.Target))
	}
	for i := 0; ; i++ {
		page, err := p.backend().Executions(ctx, belay.Filter{IDs: earlier, States: belay.ActiveStates(), Limit: 1})
		if err != nil {
			return fmt.Errorf("look for the deliveries of earlier ends of %s: %w", d.ID, err)
		}
		if len(page.Executions) == 0 {
			if page.Next != "" {
				return errors.New("the search for the deliveries of earlier ends did not finish")
			}
			return nil
		}
		if err := workflow.Sleep(ctx, "an earlier end", wait(&page.Executions[0], i), workflow.Key(i)); err != nil {
			return err
		}
	}
}

// wait returns how long to wait for an earlier delivery: until a moment after its next attempt, if it waits for one.
func wait(x *belay.Execution, tries int) time.Duration {
	if d := time.Until(x.DueAt); d > 0 {
		return min(d+firstWait, lastWait)
	}
	return min(firstWait<<min(tries, 10), lastWait)
}
