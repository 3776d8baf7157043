package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
)

// Rules checks webhooks. It implements machine.WebhookRules.
type Rules struct{}

// Check returns CodeInvalid if the scheme, a secret or an expression of a webhook is wrong.
func (Rules) Check(h *belay.Webhook) error {
	if h.Scheme.Signs() {
		if err := Check(h.Scheme, h.HMAC); err != nil {
			return err
		}
	} else if h.HMAC != nil {
		return invalid("hmac is for the scheme hmac")
	}
	if err := checkAMQP(h); err != nil {
		return err
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
	filter         *definition.Program
	input, labels  *definition.Template
	execution, key *definition.Program // of the signal
	payload        *definition.Template
}

func compile(h *belay.Webhook) (p programs, err error) {
	expression := func(name, source string, to **definition.Program) {
		if source != "" && err == nil {
			if *to, err = definition.CompileEvent(source); err != nil {
				err = invalid("%s: %v", name, err)
			}
		}
	}
	template := func(name string, text json.RawMessage, to **definition.Template) {
		if len(text) > 0 && err == nil {
			if *to, err = definition.ParseEventTemplate(text); err != nil {
				err = invalid("%s: %v", name, err)
			}
		}
	}
	expression("filter", h.Filter, &p.filter)
	template("input", h.Execution.Input, &p.input)
	if x := h.Execution.Labels; len(x) > 0 && err == nil {
		var text []byte
		if text, err = json.Marshal(x); err == nil {
			template("labels", text, &p.labels)
		}
	}
	if s := h.Signal; s != nil {
		expression("signal.execution", s.Execution, &p.execution)
		expression("signal.key", s.Key, &p.key)
		template("signal.payload", s.Payload, &p.payload)
	}
	return p, err
}

// evaluated is a delivery that the filter lets pass, with the expressions of its webhook.
type evaluated struct {
	programs
	env *definition.Env // nil if the webhook has no expressions
}

// evaluate compiles the expressions of a webhook and evaluates the filter. The error is ErrFiltered if the filter is
// false; replay says that the filter does not apply. Other errors have CodeInvalid.
func evaluate(h *belay.Webhook, e *belay.WebhookEvent, replay bool) (evaluated, error) {
	p, err := compile(h)
	v := evaluated{programs: p}
	if err != nil || p == (programs{}) && h.Execution.Workflow != httpRequests {
		return v, err
	}
	if v.env, err = environment(h, e); err != nil || p.filter == nil || replay {
		return v, err
	}
	value, err := p.filter.Eval(v.env)
	if err != nil {
		return v, invalid("filter: %v", err)
	}
	switch pass, ok := value.(bool); {
	case !ok:
		return v, invalid("filter: its value is neither true nor false")
	case !pass:
		return v, ErrFiltered
	}
	return v, nil
}

// Filtered reports whether the filter of a webhook is false for a delivery.
func Filtered(h *belay.Webhook, e *belay.WebhookEvent) bool {
	_, err := evaluate(h, e, false)
	return errors.Is(err, ErrFiltered)
}

// Execution returns the submission that a delivery starts. Its errors are those of evaluate.
func Execution(h *belay.Webhook, e *belay.WebhookEvent, replay bool) (*belay.Submission, error) {
	v, err := evaluate(h, e, replay)
	if err != nil {
		return nil, err
	}
	x := h.Execution
	if v.env == nil {
		x.Input = e.Data
		return &x, nil
	}
	if x.Input, err = v.inputOf(&x, e, v.env); err != nil {
		return nil, err
	}
	x.Labels, err = v.labelsOf(v.env)
	return &x, err
}

// Target names the execution of a signal: by its id, or by its workflow and its idempotency key.
type Target struct {
	Execution     belay.ExecutionID
	Workflow, Key string
}

// Signal returns the target and the payload of the signal that a delivery sends. Its errors are those of evaluate.
func Signal(h *belay.Webhook, e *belay.WebhookEvent, replay bool) (t Target, payload json.RawMessage, err error) {
	v, err := evaluate(h, e, replay)
	if err != nil {
		return t, nil, err
	}
	text := func(name string, p *definition.Program) string {
		value, verr := p.Eval(v.env)
		if s, ok := value.(string); verr == nil && ok && s != "" {
			return s
		}
		if n, ok := value.(int); verr == nil && ok {
			return strconv.Itoa(n)
		}
		if verr == nil {
			verr = errors.New("its value is no text")
		}
		err = invalid("signal.%s: %v", name, verr)
		return ""
	}
	if v.execution != nil {
		if id := text("execution", v.execution); err == nil {
			if t.Execution, err = belay.ParseExecutionID(id); err != nil {
				err = invalid("signal.execution: %.60q is no id of an execution", id)
			}
		}
	} else {
		t.Workflow, t.Key = h.Signal.Workflow, text("key", v.key)
	}
	if err != nil || v.payload == nil {
		return t, e.Data, err
	}
	free := *v.env
	free.NoReferences = false // no run resolves references in the payload of a signal
	value, err := v.payload.Eval(&free)
	if err != nil {
		return t, nil, invalid("signal.payload: %v", err)
	}
	payload, err = json.Marshal(value)
	return t, payload, err
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
