package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Models is the list of models. It has one model.
type Models struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// Model describes the agent as a model of OpenAI's API.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// ChatError is an error in OpenAI's format.
type ChatError struct {
	Error ChatFault `json:"error"`
}

// ChatFault is the content of a ChatError.
type ChatFault = wire.ChatFault

func (d *endpoint) models(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, Models{"list", []Model{d.theModel()}})
}

// model responds with the only model. It refuses every other name, although a chat may use any
// name.
func (d *endpoint) model(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("model") != d.o.Model {
		refuseChat(w, wire.ProblemOf(&belay.Error{
			Code: belay.CodeNotFound, Message: "the only model is " + d.o.Model + "; a chat may use any name",
		}))
		return
	}
	reply(w, http.StatusOK, d.theModel())
}

func (d *endpoint) theModel() Model { return Model{d.o.Model, "model", 0, "belay"} }

// faultOf converts a problem to an error in OpenAI's format.
func faultOf(p wire.Problem) ChatError {
	kind := "invalid_request_error"
	switch {
	case p.Code == belay.CodeUnauthorized:
		kind = "authentication_error"
	case p.Code == belay.CodeForbidden:
		kind = "permission_error"
	case p.Code == belay.CodeRateLimited:
		kind = "rate_limit_error"
	case p.Status >= 500:
		kind = "server_error"
	}
	message := p.Detail
	for _, e := range p.Errors {
		message += "; " + e.Location + ": " + e.Message
	}
	return ChatError{ChatFault{Message: message, Type: kind, Code: string(p.Code)}}
}

// chatStatus returns the HTTP status with which a chat is refused. For some error codes this status
// differs from the status on other routes.
func chatStatus(p wire.Problem) int {
	switch p.Code {
	case belay.CodeQueueFull:
		return http.StatusServiceUnavailable
	case belay.CodeInvalid:
		return http.StatusBadRequest
	default:
		return p.Status
	}
}

// refuseChat sends a problem in OpenAI's format.
func refuseChat(w http.ResponseWriter, p wire.Problem) { refuseField(w, p, nil) }

// refuseField sends the problem p in the format of OpenAI. If field is not nil, the response names
// that field of the request as invalid.
func refuseField(w http.ResponseWriter, p wire.Problem, field *string) {
	p.Status = chatStatus(p)
	retry(w, &p)
	fault := faultOf(p)
	fault.Error.Param = field
	reply(w, p.Status, fault)
}

// refuse sends the error of a chat. If err names an invalid field, so does the response.
func (c *chat) refuse(err error) {
	var field *string
	var wrong *fieldError
	if errors.As(err, &wrong) {
		field = &wrong.field
	}
	refuseField(c.w, c.problem(err), field)
}

// message is a message of a conversation.
type message struct{ role, text string }

// promptOf makes one prompt from the messages in the given field of the request. A single message with the role user is
// the prompt, unchanged. Otherwise promptOf writes each message between tags with the message's role:
//
//	<message role="user">
//	…
//	</message>
//
// A < that begins such a tag in the text of a message, in any spelling, is replaced by &lt;, so that no
// message can imitate the tag of another role.
func promptOf(field string, messages []message) (string, error) {
	if len(messages) == 0 {
		return "", wrongField(field, "a chat needs a message")
	}
	var b strings.Builder
	for _, m := range messages {
		switch m.role {
		case "system", "developer", "user", "assistant", "tool", "function":
		default:
			return "", wrongField(field,
				"a message must have one of the roles system, developer, user, assistant and tool")
		}
		if len(messages) == 1 && m.role == "user" {
			return m.text, nil
		}
		fmt.Fprintf(&b, "<message role=%q>\n%s\n</message>\n", m.role, mark.ReplaceAllString(m.text, "&lt;$1"))
	}
	return b.String(), nil
}

// checkModel checks the name of a model. It is bounded because every part of a streamed answer may contain the name.
func checkModel(name string) error {
	if len(name) > belay.MaxName {
		return wrongField("model", fmt.Sprintf("the name of a model has %d bytes at most", belay.MaxName))
	}
	return nil
}

// mark matches the beginning of a <message> or </message> tag.
var mark = regexp.MustCompile(`(?i)<(\s*/?\s*message)`)

// textOf returns the text of the content of a message in the given field of the request: a string, or a list of parts.
func textOf(field string, content json.RawMessage) (string, error) {
	if !given(content) {
		return "", nil // a message of the assistant may have no content
	}
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", wrongField(field, "the content of a message must be a string or a list of parts")
	}
	var all []string
	for _, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text", "refusal":
			all = append(all, p.Text+p.Refusal)
		default:
			return "", wrongField(field, fmt.Sprintf("a part of type %.40q; only text is supported", p.Type))
		}
	}
	return strings.Join(all, "\n"), nil
}

// given reports whether a field of a request has a value.
func given(field json.RawMessage) bool { return len(field) > 0 && string(field) != "null" }
