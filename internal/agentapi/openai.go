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

// ChatRequest is a chat in OpenAI's form, as far as it means something here.
type ChatRequest struct {
	Model         string         `json:"model,omitempty" doc:"Any; there is one agent."`
	Messages      []ChatMessage  `json:"messages"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *StreamOptions `json:"stream_options,omitempty"`
	N             *int           `json:"n,omitempty" doc:"1, if given."`
}

// StreamOptions are those of a streamed chat.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage,omitempty"`
}

// ChatMessage is what somebody said. Its content is a text, or a list of parts
// of type text.
type ChatMessage struct {
	Role    string          `json:"role"`
	Name    string          `json:"name,omitempty"`
	Content json.RawMessage `json:"content,omitempty"`
}

// Completion answers a chat.
type Completion struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	Model   string    `json:"model"`
	Choices []Choice  `json:"choices"`
	Usage   *Consumed `json:"usage,omitempty"`
}

// Choice is the one answer there is: whole, or a piece of it in a stream.
type Choice struct {
	Index        int      `json:"index"`
	Message      *Spoken  `json:"message,omitempty"`
	Delta        *Spoken  `json:"delta,omitempty"`
	LogProbs     *float64 `json:"logprobs" nullable:"true"`
	FinishReason *string  `json:"finish_reason" nullable:"true"`
}

// Spoken is what the agent says.
type Spoken struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// Consumed is what a chat has used, by the agent's own account; 0 where it gives
// none.
type Consumed struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// Models lists the one model there is.
type Models struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// Model names the agent.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// ChatError is a refusal in OpenAI's form.
type ChatError struct {
	Error ChatFault `json:"error"`
}

// ChatFault says what is wrong.
type ChatFault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func (d *door) models(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, Models{"list", []Model{d.theModel()}})
}

// model answers for the one that the list names; chats take any name.
func (d *door) model(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("model") != d.o.Model {
		refuseChat(w, wire.ProblemOf(&belay.Error{
			Code: belay.CodeNotFound, Message: "there is one model, " + d.o.Model + "; a chat may name any",
		}))
		return
	}
	reply(w, http.StatusOK, d.theModel())
}

func (d *door) theModel() Model { return Model{d.o.Model, "model", 0, "belay"} }

// faultOf is a problem in OpenAI's form.
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

// chatStatus is the status of a refused chat, where its callers expect another than
// those of other routes.
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

// refuseChat writes a problem in OpenAI's form.
func refuseChat(w http.ResponseWriter, p wire.Problem) { refuseField(w, p, nil) }

// refuseField names the field that is wrong as well, unless it is nil.
func refuseField(w http.ResponseWriter, p wire.Problem, field *string) {
	p.Status = chatStatus(p)
	retry(w, &p)
	fault := faultOf(p)
	fault.Error.Param = field
	reply(w, p.Status, fault)
}

// refuse answers a chat with what is wrong.
func (c *chat) refuse(err error) {
	var field *string
	var wrong *fieldError
	if errors.As(err, &wrong) {
		field = &wrong.field
	}
	refuseField(c.w, c.problem(c.r, err), field)
}

// prompt makes the messages one prompt. A single message of a user is the prompt
// as it stands; otherwise each is marked with who said it:
//
//	<message role="user">
//	…
//	</message>
//
// A message that holds such a mark itself, however it is written, has its <
// written as &lt;, so that nobody can speak in another's name.
func (c *ChatRequest) prompt() (string, error) {
	if len(c.Messages) == 0 {
		return "", wrongField("messages", "a chat needs a message")
	}
	if len(c.Model) > belay.MaxName { // it is in every piece of the answer
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
				"a message has one of the roles system, developer, user, assistant and tool")
		}
		if len(c.Messages) == 1 && m.Role == "user" {
			return text, nil
		}
		fmt.Fprintf(&b, "<message role=%q>\n%s\n</message>\n", m.Role, mark.ReplaceAllString(text, "&lt;$1"))
	}
	return b.String(), nil
}

// mark is the beginning of a mark of who speaks, or of its end.
var mark = regexp.MustCompile(`(?i)<(\s*/?\s*message)`)

// text is what was said.
func (m *ChatMessage) text() (string, error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return "", nil // an assistant's message may have none
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
		return "", wrongField("messages", "the content of a message is a text, or a list of parts")
	}
	var all []string
	for _, p := range parts {
		switch p.Type {
		case "text", "refusal":
			all = append(all, p.Text+p.Refusal)
		default:
			return "", wrongField("messages", fmt.Sprintf("a part of type %q; only text is taken", p.Type))
		}
	}
	return strings.Join(all, "\n"), nil
}
