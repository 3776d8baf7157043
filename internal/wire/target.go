package wire

import (
	"net/url"
	"time"

	"github.com/belaydev/belay"
)

// TargetTerms say where a target of notifications is, and what it gets.
type TargetTerms struct {
	URL       string            `json:"url,omitempty" minLength:"1" maxLength:"2048" doc:"An http or https URL. A reference such as ${{ secrets.NAME }} may stand for the whole URL, or for a part of its path or query. A target has a url or an exchange."`
	Exchange  string            `json:"exchange,omitempty" minLength:"1" maxLength:"255" doc:"An exchange of RabbitMQ, in place of a URL: the ends and alerts are messages there. Belay does not declare it."`
	Key       string            `json:"routing_key,omitempty" maxLength:"255" doc:"The routing key of the messages to the exchange; without it, execution.completed, or alert. and the alert."`
	Format    string            `json:"format,omitempty" enum:"event,slack" doc:"The body of the requests. event, the default: JSON in the form of Standard Webhooks. slack: an object with a text."`
	On        []string          `json:"on,omitempty" enum:"failed,succeeded,cancelled" maxItems:"3" doc:"The ends that are reported; without it, failed, or each end if there is an exchange, or none if there are alerts."`
	Secret    string            `json:"secret,omitempty" maxLength:"200" doc:"A reference such as ${{ secrets.NAME }} to the secret that signs the requests in the form of Standard Webhooks. Without it, they are not signed."`
	Workflows []string          `json:"workflows,omitempty" maxItems:"20" doc:"The workflows of the executions, and of dead letters and lanes. An asterisk stands for any text. Without it, all."`
	Queues    []string          `json:"queues,omitempty" maxItems:"20" doc:"The queues of the executions, and of lanes. An asterisk stands for any text. Without it, all."`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels that the executions must have."`
	Alerts    []string          `json:"alerts,omitempty" enum:"dead_letter,breaker_open,no_worker" maxItems:"3" doc:"The alerts that the target gets."`
}

// TargetTermsOf converts the terms of a target for the wire.
func TargetTermsOf(t *belay.NotificationTarget) TargetTerms {
	w := TargetTerms{
		URL: t.URL, Exchange: t.Exchange, Key: t.RoutingKey, Format: string(t.Format), Secret: t.Secret,
		Workflows: t.Workflows, Queues: t.Queues, Labels: t.Labels,
	}
	for _, s := range t.On {
		w.On = append(w.On, s.String())
	}
	for _, a := range t.Alerts {
		w.Alerts = append(w.Alerts, string(a))
	}
	return w
}

// Target converts the terms from the wire.
func (w *TargetTerms) Target(name string) (belay.NotificationTarget, error) {
	t := belay.NotificationTarget{
		Name: name, Exchange: w.Exchange, RoutingKey: w.Key, Workflows: w.Workflows, Queues: w.Queues, Labels: w.Labels,
		Notification: belay.Notification{URL: w.URL, Format: belay.NotificationFormat(w.Format), Secret: w.Secret},
	}
	for _, word := range w.On {
		var s belay.State
		if err := s.UnmarshalText([]byte(word)); err != nil {
			return t, err
		}
		t.On = append(t.On, s)
	}
	for _, word := range w.Alerts {
		t.Alerts = append(t.Alerts, belay.Alert(word))
	}
	return t, nil
}

// PutTarget sets the terms of a target of notifications. The headers are those of PutSchedule.
type PutTarget struct {
	TargetTerms
	By
}

// Target is a target of notifications with its state.
type Target struct {
	Name string `json:"name"`
	TargetTerms
	Version   int                      `json:"version" doc:"Counts the changes by operators, from 1."`
	Paused    *belay.NotificationPause `json:"paused,omitempty" doc:"Present while the target gets nothing. Nothing of this time is sent later."`
	CreatedAt time.Time                `json:"created_at"`
	UpdatedAt time.Time                `json:"updated_at"`
	UpdatedBy string                   `json:"updated_by,omitempty"`
}

// TargetOf converts a target for the wire.
func TargetOf(t *belay.NotificationTargetInfo) Target {
	return Target{
		Name: t.Name, TargetTerms: TargetTermsOf(&t.NotificationTarget), Version: t.Version, Paused: t.Paused,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, UpdatedBy: t.UpdatedBy,
	}
}

// Info converts a target from the wire.
func (w *Target) Info() (belay.NotificationTargetInfo, error) {
	t, err := w.TargetTerms.Target(w.Name)
	return belay.NotificationTargetInfo{
		NotificationTarget: t, Version: w.Version, Paused: w.Paused, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
		UpdatedBy: w.UpdatedBy,
	}, err
}

// Targets are all targets of notifications.
type Targets struct {
	Targets []Target `json:"targets"`
}

// ChangeTarget pauses or resumes a target of notifications.
type ChangeTarget struct{ By }

// TestTarget asks for a test of a target of notifications.
type TestTarget struct {
	Actor string `json:"actor,omitempty" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

// TargetTested is the answer to a TestTarget.
type TargetTested struct {
	Execution belay.ExecutionID `json:"execution" doc:"The delivery: an execution of the workflow http, or belay.publish for an exchange."`
}

// TargetPath is the path of a target of notifications.
func TargetPath(name string) string { return "/v1/notification-targets/" + url.PathEscape(name) }
