package definition

import (
	"encoding/json"
	"strings"

	"github.com/belaydev/belay"
)

// ParseEventTemplate compiles the expressions in the texts of a JSON value. They read an event and nothing else. Its
// errors have CodeInvalid.
func ParseEventTemplate(text json.RawMessage) (*Template, error) {
	r := &report{words: eventWords}
	n, ok := parseJSON(text, r)
	if !ok {
		return nil, &belay.Error{Code: belay.CodeInvalid, Message: "it is not JSON"}
	}
	t := r.template(n, func(*part) {})
	if len(r.list) == 0 {
		return t, nil
	}
	messages := make([]string, len(r.list))
	for i, p := range r.list {
		messages[i] = p.Message
	}
	return nil, &belay.Error{Code: belay.CodeInvalid, Message: strings.Join(messages, "; ")}
}
