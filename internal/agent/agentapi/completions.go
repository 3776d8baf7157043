package agentapi

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
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

// completions is the format of chat completions.
type completions struct {
	agent string // the model of a request that names none
	req   ChatRequest
}

func (f *completions) read(_ *Service, r *http.Request) (inquiry, error) {
	if err := decode(r, false, &f.req); err != nil {
		return inquiry{}, err
	}
	text, err := f.req.prompt()
	return inquiry{prompt: text, stream: f.req.Stream}, err
}

func (c *ChatRequest) prompt() (string, error) {
	if err := checkModel(c.Model); err != nil {
		return "", err
	}
	if c.N != nil && *c.N != 1 {
		return "", wrongField("n", "n must be 1: there is one answer to a chat")
	}
	messages := make([]message, len(c.Messages))
	for i, m := range c.Messages {
		text, err := textOf("messages", m.Content)
		if err != nil {
			return "", err
		}
		messages[i] = message{m.Role, text}
	}
	return promptOf("messages", messages)
}

func (f *completions) whole(x *belay.Execution, a *agent.Answer) any {
	done := f.piece(x, "chat.completion", Choice{Message: &Spoken{"assistant", &a.Text}, FinishReason: finish(a.Cut)})
	done.Usage = consumed(a)
	return done
}

func (f *completions) begin(x *belay.Execution) []event {
	empty := ""
	return f.delta(x, Spoken{"assistant", &empty}, nil)
}

func (f *completions) say(x *belay.Execution, text string) []event {
	return f.delta(x, Spoken{Content: &text}, nil)
}

func (f *completions) end(x *belay.Execution, a *agent.Answer, t told) []event {
	last := f.delta(x, Spoken{}, finish(t.cut))
	if o := f.req.StreamOptions; o != nil && o.IncludeUsage {
		usage := f.piece(x, chunkObject)
		usage.Usage = consumed(a)
		last = append(last, event{data: usage})
	}
	return append(last, event{word: "[DONE]"})
}

func (*completions) fail(_ *belay.Execution, f ChatFault) []event {
	return []event{{data: ChatError{f}}}
}

const chunkObject = "chat.completion.chunk"

func (f *completions) delta(x *belay.Execution, said Spoken, why *string) []event {
	return []event{{data: f.piece(x, chunkObject, Choice{Delta: &said, FinishReason: why})}}
}

// piece returns a response that contains a whole answer, or a part of a streamed answer.
func (f *completions) piece(x *belay.Execution, object string, choices ...Choice) *Completion {
	if choices == nil {
		choices = []Choice{}
	}
	return &Completion{
		ID: "chatcmpl-" + x.ID.String(), Object: object, Created: x.CreatedAt.Unix(), Model: cmp.Or(f.req.Model,
			f.agent), Choices: choices,
	}
}

func finish(cut bool) *string {
	why := "stop"
	if cut {
		why = "length"
	}
	return &why
}

func consumed(a *agent.Answer) *Consumed {
	var u Consumed
	if a.Usage != nil {
		u = Consumed{a.Usage.InputTokens, a.Usage.OutputTokens, a.Usage.Total()}
	}
	return &u
}
