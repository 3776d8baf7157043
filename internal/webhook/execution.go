package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
)

// Rules checks webhooks. It implements machine.WebhookRules.
type Rules struct{}

// Check returns CodeInvalid if the scheme, a secret or an expression of a webhook is wrong.
func (Rules) Check(h *belay.Webhook) error {
	if h.Scheme != belay.SchemeCloudEvents {
		if err := Check(h.Scheme, h.HMAC); err != nil {
			return err
		}
	} else if h.HMAC != nil {
		return invalid("hmac is for the scheme hmac")
	}
	for _, s := range h.Secrets {
		if SecretName(s) == "" {
			return invalid("a secret of a webhook is a reference such as ${{ secrets.GITHUB_HOOK }}, and not the " +
				"secret itself: the configuration of the server says where the secret is")
		}
	}
	if len(h.Secrets) == 2 && h.Secrets[0] == h.Secrets[1] {
		return invalid("the two secrets of a webhook are the same")
	}
	_, err := compile(h)
	return err
}

// secretReference is the form of a reference to a secret.
var secretReference = regexp.MustCompile(`^\$\{\{ *secrets\.([A-Za-z_][A-Za-z0-9_]{0,99}) *\}\}$`)

// SecretName returns the name in a reference to a secret; empty if the text is none.
func SecretName(reference string) string {
	m := secretReference.FindStringSubmatch(reference)
	if m == nil {
		return ""
	}
	return m[1]
}

// ErrFiltered is the error of Execution for a delivery for which the filter is false.
var ErrFiltered = errors.New("the filter is false for this delivery")

// programs are the compiled expressions of a webhook; nil for what it leaves out.
type programs struct {
	filter        *definition.Program
	input, labels *definition.Template
}

func compile(h *belay.Webhook) (p programs, err error) {
	if h.Filter != "" {
		if p.filter, err = definition.CompileEvent(h.Filter); err != nil {
			return p, invalid("filter: %v", err)
		}
	}
	if x := h.Execution.Input; len(x) > 0 {
		if p.input, err = definition.ParseEventTemplate(x); err != nil {
			return p, invalid("input: %v", err)
		}
	}
	if x := h.Execution.Labels; len(x) > 0 {
		text, err := json.Marshal(x)
		if err != nil {
			return p, invalid("labels: %v", err)
		}
		if p.labels, err = definition.ParseEventTemplate(text); err != nil {
			return p, invalid("labels: %v", err)
		}
	}
	return p, nil
}

// Execution returns the submission that a delivery starts. The error is ErrFiltered if the filter is false; replay says
// that the filter does not apply. Other errors have CodeInvalid.
func Execution(h *belay.Webhook, e *belay.WebhookEvent, replay bool) (*belay.Submission, error) {
	p, err := compile(h)
	if err != nil {
		return nil, err
	}
	x := h.Execution
	if p == (programs{}) && x.Workflow != httpRequests {
		x.Input = e.Data
		return &x, nil
	}
	env, err := environment(h, e)
	if err != nil {
		return nil, err
	}
	if p.filter != nil && !replay {
		v, err := p.filter.Eval(env)
		if err != nil {
			return nil, invalid("filter: %v", err)
		}
		pass, ok := v.(bool)
		if !ok {
			return nil, invalid("filter: its value is neither true nor false")
		}
		if !pass {
			return nil, ErrFiltered
		}
	}
	if x.Input, err = p.inputOf(&x, e, env); err != nil {
		return nil, err
	}
	x.Labels, err = p.labelsOf(env)
	return &x, err
}

// environment gives expressions the values of a delivery. Its data comes from a stranger, so that no value may become a
// reference to a secret.
func environment(h *belay.Webhook, e *belay.WebhookEvent) (*definition.Env, error) {
	data, err := decodeJSON(e.Data)
	if err != nil {
		return nil, err
	}
	headers := make(map[string]any, len(e.Headers))
	for name, value := range e.Headers {
		headers[name] = value
	}
	return &definition.Env{NoReferences: true, Event: map[string]any{
		"id": e.ID, "type": e.Type, "source": cmp.Or(e.Source, h.Name), "headers": headers, "data": data,
	}}, nil
}

// httpRequests is the built-in workflow that makes HTTP requests. It resolves references to secrets in its input.
const httpRequests = "http"

// wholeData is the input of a webhook that describes none.
const wholeData = `"${{ event.data }}"`

// inputOf is the input of the execution. Only the workflow http resolves references to secrets in its own input, so
// that other inputs may contain any text.
func (p *programs) inputOf(x *belay.Submission, e *belay.WebhookEvent, env *definition.Env) (json.RawMessage, error) {
	input := p.input
	if input == nil {
		if x.Workflow != httpRequests {
			return e.Data, nil
		}
		var err error
		if input, err = definition.ParseEventTemplate(json.RawMessage(wholeData)); err != nil {
			return nil, err
		}
	}
	free := *env
	free.NoReferences = x.Workflow == httpRequests
	v, err := input.Eval(&free)
	if err != nil {
		return nil, invalid("input: %v", err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, invalid("input: %v", err)
	}
	return text, nil
}

func (p *programs) labelsOf(env *definition.Env) (map[string]string, error) {
	if p.labels == nil {
		return nil, nil
	}
	v, err := p.labels.Eval(env)
	if err != nil {
		return nil, invalid("labels: %v", err)
	}
	all, ok := v.(map[string]any)
	if !ok {
		return nil, invalid("labels: they are no map")
	}
	labels := make(map[string]string, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch v := all[name].(type) {
		case string:
			labels[name] = v
		case bool, int, float64:
			labels[name] = fmt.Sprint(v)
		case nil: // the delivery does not have the value
		default:
			return nil, invalid("labels: the value of %q is a list or a map", name)
		}
	}
	return labels, nil
}
