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

// ChatRequest is a chat request in OpenAI's format, with the fields that Belay uses.
type ChatRequest struct {
	_             struct{}       `additionalProperties:"true"`
	Model         string         `json:"model,omitempty" doc:"Any name; there is one agent."`
	Messages      []ChatMessage  `json:"messages"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *StreamOptions `json:"stream_options,omitempty"`
	N             *int           `json:"n,omitempty" doc:"1, if given."`
}

// StreamOptions are the options of a chat whose answer is streamed.
type StreamOptions struct {
	_            struct{} `additionalProperties:"true"`
	IncludeUsage bool     `json:"include_usage,omitempty"`
}

// ChatMessage is a message of a chat. Its content is a string, or a list of parts of type text.
type ChatMessage struct {
	_       struct{}        `additionalProperties:"true"`
	Role    string          `json:"role" enum:"system,developer,user,assistant,tool,function"`
	Name    string          `json:"name,omitempty"`
	Content json.RawMessage `json:"content,omitempty" doc:"A text, or a list of parts of type text; null for none."`
}

// Completion is the response to a chat.
type Completion struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	Model   string    `json:"model"`
	Choices []Choice  `json:"choices"`
	Usage   *Consumed `json:"usage,omitempty"`
}

// Choice is the only answer of a Completion: the whole answer or, in a stream, a part of it.
type Choice struct {
	Index        int      `json:"index"`
	Message      *Spoken  `json:"message,omitempty"`
	Delta        *Spoken  `json:"delta,omitempty"`
	LogProbs     *float64 `json:"logprobs" nullable:"true"`
	FinishReason *string  `json:"finish_reason" nullable:"true"`
}

// Spoken is a message of the agent.
type Spoken struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// Consumed is the number of tokens that the agent reports; 0 if the agent reports none.
type Consumed struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

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
type ChatFault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param" nullable:"true"`
	Code    string  `json:"code"`
}

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
	refuseField(c.w, c.problem(c.r, err), field)
}

// prompt makes one prompt from the messages. A single message with the role user is the prompt,
// unchanged. Otherwise prompt writes each message between tags with the message's role:
//
//	<message role="user">
//	…
//	</message>
//
// A < that begins such a tag in the text of a message, in any spelling, is replaced by &lt;, so that no
// message can imitate the tag of another role.
func (c *ChatRequest) prompt() (string, error) {
	if len(c.Messages) == 0 {
		return "", wrongField("messages", "a chat needs a message")
	}
	if len(c.Model) > belay.MaxName { // because every part of the answer contains the name
		return "", wrongField("model", fmt.Sprintf("the name of a model has %d bytes at most", belay.MaxName))
	}
	if c.N != nil && *c.N != 1 {
		return "", wrongField("n", "n must be 1: there is one answer to a chat")
	}
	var b strings.Builder
	for i := range c.Messages {
		m := &c.Messages[i]
		text, err := m.text()
		if err != nil {
			return "", err
		}
		switch m.Role {
		case "system", "developer", "user", "assistant", "tool", "function":
		default:
			return "", wrongField("messages",
				"a message must have one of the roles system, developer, user, assistant and tool")
		}
		if len(c.Messages) == 1 && m.Role == "user" {
			return text, nil
		}
		fmt.Fprintf(&b, "<message role=%q>\n%s\n</message>\n", m.Role, mark.ReplaceAllString(text, "&lt;$1"))
	}
	return b.String(), nil
}

// mark matches the beginning of a <message> or </message> tag.
var mark = regexp.MustCompile(`(?i)<(\s*/?\s*message)`)

// text returns the text of a message.
func (m *ChatMessage) text() (string, error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return "", nil // a message of the assistant may have no content
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", wrongField("messages", "the content of a message must be a string or a list of parts")
	}
	var all []string
	for _, p := range parts {
		switch p.Type {
		case "text", "refusal":
			all = append(all, p.Text+p.Refusal)
		default:
			return "", wrongField("messages", fmt.Sprintf("a part of type %q; only text is supported", p.Type))
		}
	}
	return strings.Join(all, "\n"), nil
}
