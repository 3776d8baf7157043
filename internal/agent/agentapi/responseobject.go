package agentapi

import (
	"encoding/json"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// ResponseRequest is a request for a response in OpenAI's format, with the fields that Belay uses or refuses.
type ResponseRequest struct {
	_            struct{}          `additionalProperties:"true"`
	Model        string            `json:"model,omitempty" doc:"Any name; there is one agent."`
	Input        json.RawMessage   `json:"input" doc:"A text, or a list of messages and of references to messages of earlier responses. The content of a message is a text, or a list of parts with texts."`
	Instructions string            `json:"instructions,omitempty" doc:"A message of the system before the input."`
	Stream       bool              `json:"stream,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty" doc:"Data of the caller, returned with the response."`
	Tools        []json.RawMessage `json:"tools,omitempty" doc:"Refused, unless tool_choice is none: the agent uses its own tools."`
	ToolChoice   json.RawMessage   `json:"tool_choice,omitempty"`
	Text         *ResponseText     `json:"text,omitempty"`
	Background   bool              `json:"background,omitempty" doc:"Refused if true."`
	Previous     string            `json:"previous_response_id,omitempty" doc:"Refused."`
	Conversation json.RawMessage   `json:"conversation,omitempty" doc:"Refused."`
	Prompt       json.RawMessage   `json:"prompt,omitempty" doc:"Refused."`
}

// ResponseText says which form the text of a response has.
type ResponseText struct {
	_      struct{}        `additionalProperties:"true"`
	Format *ResponseFormat `json:"format,omitempty"`
}

// ResponseFormat is the form of the text of a response.
type ResponseFormat struct {
	_    struct{} `additionalProperties:"true"`
	Type string   `json:"type" doc:"text; other forms are refused."`
}

// Response is an answer of the agent, in OpenAI's format.
type Response struct {
	ID                 string            `json:"id" doc:"resp_ and the id of the job."`
	Object             string            `json:"object" enum:"response"`
	CreatedAt          int64             `json:"created_at"`
	CompletedAt        *int64            `json:"completed_at" nullable:"true"`
	Status             string            `json:"status" enum:"queued,in_progress,completed,incomplete,failed,cancelled"`
	Background         bool              `json:"background"`
	Error              *ResponseFault    `json:"error"`
	IncompleteDetails  *Incomplete       `json:"incomplete_details"`
	Instructions       *string           `json:"instructions" nullable:"true"`
	Metadata           map[string]string `json:"metadata"`
	Model              string            `json:"model"`
	Output             []ResponseMessage `json:"output"`
	ParallelToolCalls  bool              `json:"parallel_tool_calls"`
	PreviousResponseID *string           `json:"previous_response_id" nullable:"true"`
	Store              bool              `json:"store"`
	Temperature        *float64          `json:"temperature" nullable:"true"`
	Text               ResponseText      `json:"text"`
	ToolChoice         string            `json:"tool_choice"`
	Tools              []json.RawMessage `json:"tools"`
	TopP               *float64          `json:"top_p" nullable:"true"`
	Usage              *ResponseUsage    `json:"usage"`
}

// ResponseFault says why a response failed.
type ResponseFault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Incomplete says why a response is not complete.
type Incomplete struct {
	Reason string `json:"reason" enum:"max_output_tokens"`
}

// ResponseMessage is the message of the agent in a response.
type ResponseMessage struct {
	ID      string         `json:"id" doc:"msg_ and the id of the job."`
	Type    string         `json:"type" enum:"message"`
	Role    string         `json:"role" enum:"assistant"`
	Status  string         `json:"status" enum:"in_progress,completed,incomplete"`
	Content []ResponsePart `json:"content"`
}

// ResponsePart is the text of the agent in a response.
type ResponsePart struct {
	Type        string            `json:"type" enum:"output_text"`
	Text        string            `json:"text"`
	Annotations []json.RawMessage `json:"annotations"`
	LogProbs    []json.RawMessage `json:"logprobs"`
}

// ResponseUsage is the number of tokens that the agent reports; 0 if the agent reports none.
type ResponseUsage struct {
	InputTokens   int64         `json:"input_tokens"`
	InputDetails  InputDetails  `json:"input_tokens_details"`
	OutputTokens  int64         `json:"output_tokens"`
	OutputDetails OutputDetails `json:"output_tokens_details"`
	TotalTokens   int64         `json:"total_tokens"`
}

// InputDetails are the numbers of input tokens of a kind. Agents do not report them.
type InputDetails struct {
	Cached int64 `json:"cached_tokens"`
}

// OutputDetails are the numbers of output tokens of a kind. Agents do not report them.
type OutputDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// ResponseEvent is an event about a response.
type ResponseEvent struct {
	Type     string    `json:"type"`
	Sequence int64     `json:"sequence_number"`
	Response *Response `json:"response"`
}

// ResponseItemEvent is an event about the message in a response.
type ResponseItemEvent struct {
	Type        string           `json:"type"`
	Sequence    int64            `json:"sequence_number"`
	OutputIndex int              `json:"output_index"`
	Item        *ResponseMessage `json:"item"`
}

// ResponsePlace is the place of a text in a response.
type ResponsePlace struct {
	Type         string `json:"type"`
	Sequence     int64  `json:"sequence_number"`
	ItemID       string `json:"item_id"`
	OutputIndex  int    `json:"output_index"`
	ContentIndex int    `json:"content_index"`
}

// ResponsePartEvent is an event about the text in a response.
type ResponsePartEvent struct {
	ResponsePlace
	Part *ResponsePart `json:"part"`
}

// ResponseDeltaEvent has a part of the text.
type ResponseDeltaEvent struct {
	ResponsePlace
	Delta    string            `json:"delta"`
	LogProbs []json.RawMessage `json:"logprobs"`
}

// ResponseTextEvent has the whole text.
type ResponseTextEvent struct {
	ResponsePlace
	Text     string            `json:"text"`
	LogProbs []json.RawMessage `json:"logprobs"`
}

// The statuses of a response and of its message.
const (
	responseQueued     = "queued"
	responseInProgress = "in_progress"
	responseCompleted  = "completed"
	responseIncomplete = "incomplete"
	responseFailed     = "failed"
	responseCancelled  = "cancelled"
)

const (
	responsePrefix = "resp_"
	messagePrefix  = "msg_"
)

// responseTo returns the response of a job, with the given status and without output.
func responseTo(x *belay.Execution, model, status string) *Response {
	r := &Response{
		ID: responsePrefix + x.ID.String(), Object: "response", CreatedAt: x.CreatedAt.Unix(), Status: status,
		Metadata: make(map[string]string), Model: model, Output: []ResponseMessage{}, Store: true,
		Text: ResponseText{Format: &ResponseFormat{Type: "text"}}, ToolChoice: "auto", Tools: []json.RawMessage{},
	}
	var p agent.Prompt
	if json.Unmarshal(x.Input, &p) == nil && given(p.Metadata) {
		var pairs map[string]string // jobs of other routes may have other metadata
		if json.Unmarshal(p.Metadata, &pairs) == nil {
			r.Metadata = pairs
		}
	}
	return r
}

// answered returns the response of a job that succeeded, with the text of its answer. cut says that the text is not
// whole.
func answered(x *belay.Execution, a *agent.Answer, model, text string, cut bool) *Response {
	r := responseTo(x, model, responseCompleted)
	if cut {
		r.Status, r.IncompleteDetails = responseIncomplete, &Incomplete{"max_output_tokens"}
	}
	if !x.FinishedAt.IsZero() {
		at := x.FinishedAt.Unix()
		r.CompletedAt = &at
	}
	r.Output = append(r.Output, *messageOf(x, r.Status, *partOf(text)))
	u := consumed(a)
	r.Usage = &ResponseUsage{
		InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens, TotalTokens: u.TotalTokens,
	}
	return r
}

func messageOf(x *belay.Execution, status string, parts ...ResponsePart) *ResponseMessage {
	if parts == nil {
		parts = []ResponsePart{}
	}
	return &ResponseMessage{messagePrefix + x.ID.String(), "message", "assistant", status, parts}
}

func partOf(text string) *ResponsePart {
	return &ResponsePart{"output_text", text, []json.RawMessage{}, []json.RawMessage{}}
}
