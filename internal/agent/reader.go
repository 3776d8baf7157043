package agent

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

const (
	// maxAnswer is the maximum size of an answer, in bytes. If an answer is longer, only its end is
	// kept.
	maxAnswer = 256 << 10
	// maxLine is the maximum size of a line of structured output, in bytes; longer lines are
	// ignored.
	maxLine = 4 << 20
	// maxBrief is the maximum size of the text of a Progress, in bytes.
	maxBrief = 2 << 10
)

// Usage is the usage that an agent reports.
type Usage struct {
	InputTokens      int64   `json:"input_tokens"`
	OutputTokens     int64   `json:"output_tokens"`
	CacheReadTokens  int64   `json:"cache_read_tokens,omitempty"`
	CacheWriteTokens int64   `json:"cache_write_tokens,omitempty"`
	CostUSD          float64 `json:"cost_usd,omitempty"`
	UnpricedTokens   int64   `json:"unpriced_tokens,omitempty"`
	Turns            int     `json:"turns,omitempty"`
}

// Total returns the sum of all tokens.
func (u Usage) Total() int64 { return u.InputTokens + u.OutputTokens }

// Progress is one action of an agent, according to its structured output.
type Progress struct {
	// Kind is text, tool, tool_result, system or result.
	Kind string `json:"kind"`
	// Name is the name of the tool.
	Name string `json:"name,omitempty"`
	// Text is the beginning of the agent's or the tool's text.
	Text string `json:"text,omitempty"`
}

// reader parses the standard output of an agent: plain text, or one JSON object on each line in
// Claude Code's format stream-json. It ignores lines of unknown form, so no output of an agent
// causes an error.
type reader struct {
	form string // the form of the output; OutputAuto until the form is detected
	tell func(Progress)
	said func([]byte) // gets the agent's texts as they arrive; may be nil

	lines  lines
	head   []byte // output before the form is detected
	answer tail
	speech speech
	final  *string // the text of the message result; nil before that message
	usage  *Usage
	meter  *meter // counts the usage; may be nil
	turns  int
	// current are the messages that arrive in pieces, by the tool call in which their subagent works.
	current map[string]string
	failed  bool // the message result reports an error
	// denied are the tools that the agent was not permitted to use. session is the id that the
	// agent gave to the conversation.
	denied  []string
	session string
}

func newReader(form string, tell func(Progress), said func([]byte)) *reader {
	r := &reader{form: form, tell: tell, said: said, speech: speech{tell: said}}
	r.lines = lines{most: maxLine, each: r.line}
	return r
}

// write parses a part of standard output.
func (r *reader) write(p []byte) {
	if r.form == OutputAuto {
		r.head = append(r.head, p...)
		trimmed := bytes.TrimLeft(r.head, " \t\r\n")
		end := bytes.IndexByte(trimmed, '\n')
		switch {
		case len(trimmed) == 0 && len(r.head) < maxBrief:
			return
		case len(trimmed) > 0 && trimmed[0] == '{' && end < 0 && len(trimmed) < maxLine:
			return
		}
		r.decide(trimmed, end)
		return
	}
	r.take(p)
}

func (r *reader) decide(trimmed []byte, end int) {
	if end >= 0 {
		trimmed = trimmed[:end]
	}
	r.form = OutputPlain
	var m message
	if len(trimmed) > 0 && trimmed[0] == '{' && json.Unmarshal(trimmed, &m) == nil && m.Type != "" {
		r.form = OutputStreamJSON
	}
	head := r.head
	r.head = nil
	r.take(head)
}

func (r *reader) take(p []byte) {
	if r.form == OutputStreamJSON {
		r.lines.write(p)
		return
	}
	r.answer.write(p)
	if r.said != nil {
		r.said(p)
	}
}

// end parses the rest of the output. It must be called after the last write.
func (r *reader) end() {
	if r.form == OutputAuto {
		trimmed := bytes.TrimSpace(r.head)
		r.decide(trimmed, bytes.IndexByte(trimmed, '\n'))
	}
	r.lines.end()
}

// text returns the answer, and whether its beginning was cut off because the answer was too long.
func (r *reader) text() (string, bool) {
	if r.form != OutputStreamJSON {
		return r.answer.text(), r.answer.cut
	}
	var t tail
	if r.final != nil {
		t.write([]byte(*r.final))
	} else {
		t.write(r.speech.last) // the agent has sent no message result
	}
	return t.text(), t.cut
}

// message has the fields of a line of stream-json that Belay uses.
type message struct {
	Type    string       `json:"type"`
	Subtype string       `json:"subtype"`
	Result  *string      `json:"result"`
	IsError bool         `json:"is_error"`
	Turns   int          `json:"num_turns"`
	CostUSD *float64     `json:"total_cost_usd"`
	Usage   *tokenCounts `json:"usage"`
	// Models has the usage of the whole run by model, also of calls outside of the conversation.
	Models map[string]struct {
		Input    int64 `json:"inputTokens"`
		Created  int64 `json:"cacheCreationInputTokens"`
		FromRead int64 `json:"cacheReadInputTokens"`
		Output   int64 `json:"outputTokens"`
	} `json:"modelUsage"`
	// Message is an object of type spoken, or a string.
	Message json.RawMessage `json:"message"`
	// Within is set in a message of a subagent: the id of the tool call in which the subagent
	// works.
	Within string          `json:"parent_tool_use_id"`
	Event  json.RawMessage `json:"event"`
	// Session is the id of the conversation; only the message init has it. The agent reports each
	// denied tool two times: at once as Tool, and in Denials of the last message (result).
	Session string `json:"session_id"`
	Tool    string `json:"tool_name"`
	Denials []struct {
		Tool string `json:"tool_name"`
	} `json:"permission_denials"`
}

// spoken is a message of the agent or a tool.
type spoken struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Usage   *tokenCounts    `json:"usage"`
	Content json.RawMessage `json:"content"`
}

// The subtypes of system messages that Belay uses.
const (
	systemInit   = "init"
	systemDenied = "permission_denied"
)

// maxDenied is the maximum number of denied tools that are recorded. maxName is the maximum length
// of their names, in bytes.
const (
	maxDenied = 20
	maxName   = 100
)

// block is a part of a message.
type block struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Content json.RawMessage `json:"content"`
}

func (r *reader) line(line []byte, whole bool) {
	var m message
	if !whole || json.Unmarshal(line, &m) != nil {
		return
	}
	switch m.Type {
	case "assistant", "user":
		r.spoken(&m)
	case "stream_event":
		if m.Within == "" {
			r.speech.piece(m.Event)
		}
		r.metered(&m)
	case "system":
		r.system(&m)
	case "result":
		r.result(&m)
	}
}

// Narrate reads one line of structured output, as a page shows it: the progress that the line reports. known is false
// if the line is none of an agent's. A line with a piece of a message that follows as a whole is known, and says
// nothing.
func Narrate(line []byte) (said []Progress, known bool) {
	var m message
	if json.Unmarshal(line, &m) != nil ||
		!slices.Contains([]string{"assistant", "user", "stream_event", "system", "result"}, m.Type) {
		return nil, false
	}
	r := newReader(OutputStreamJSON, func(p Progress) { said = append(said, p) }, nil)
	r.line(line, true)
	return said, true
}

func (r *reader) system(m *message) {
	p := Progress{Kind: "system", Name: m.Subtype}
	switch m.Subtype {
	case systemInit:
		if len(m.Session) <= maxName {
			r.session = Shown(m.Session)
		}
		p.Text = r.session
	case systemDenied:
		r.deny(m.Tool)
		p.Text = brief(m.Tool)
	}
	r.tell(p)
}

// deny records a tool that the agent was not permitted to use, without duplicates.
func (r *reader) deny(tool string) {
	if tool = Shown(tool[:min(len(tool), maxName)]); tool != "" && len(r.denied) < maxDenied &&
		!slices.Contains(r.denied, tool) {
		r.denied = append(r.denied, tool)
	}
}

func (r *reader) spoken(m *message) {
	var said spoken
	if json.Unmarshal(m.Message, &said) != nil {
		return
	}
	if m.Type == "assistant" {
		r.meter.message(said.ID, said.Model, said.Usage)
	}
	for _, b := range blocksOf(said.Content) {
		switch b.Type {
		case "text":
			if m.Type == "assistant" && m.Within == "" {
				r.speech.part(said.ID, b.Text)
			}
			r.tell(Progress{Kind: "text", Text: brief(b.Text)})
		case "tool_use":
			r.tell(Progress{Kind: "tool", Name: b.Name, Text: brief(string(b.Input))})
		case "tool_result":
			var said []string
			for _, c := range blocksOf(b.Content) {
				said = append(said, c.Text)
			}
			r.tell(Progress{Kind: "tool_result", Text: brief(strings.Join(said, "\n"))})
		}
	}
}

// blocksOf parses the content of a message, which is a string or a list of blocks.
func blocksOf(content json.RawMessage) []block {
	var all []block
	var text string
	if json.Unmarshal(content, &text) == nil && text != "" {
		return []block{{Type: "text", Text: text}}
	}
	_ = json.Unmarshal(content, &all) // unknown content is ignored
	return all
}

// metered counts the usage that a message in pieces reports at its begin and its end.
func (r *reader) metered(m *message) {
	var e struct {
		Type    string       `json:"type"`
		Message spoken       `json:"message"`
		Usage   *tokenCounts `json:"usage"`
	}
	if r.meter == nil || json.Unmarshal(m.Event, &e) != nil {
		return
	}
	switch e.Type {
	case "message_start":
		if len(r.current) == maxCounted {
			clear(r.current)
		}
		if r.current == nil {
			r.current = make(map[string]string)
		}
		r.current[m.Within] = e.Message.ID
		r.meter.message(e.Message.ID, e.Message.Model, e.Message.Usage)
	case "message_delta":
		r.meter.message(r.current[m.Within], "", e.Usage)
	}
}

func (r *reader) result(m *message) {
	if m.Result != nil {
		r.final = m.Result
		r.speech.final(*m.Result)
	}
	r.failed = m.IsError || strings.HasPrefix(m.Subtype, "error")
	for _, d := range m.Denials {
		r.deny(d.Tool)
	}
	var all belay.ModelUsage
	if m.Usage != nil {
		all = m.Usage.usage()
	}
	var models belay.ModelUsage
	for _, u := range m.Models {
		models = models.Add((&tokenCounts{u.Input, u.Created, u.FromRead, u.Output}).usage())
	}
	own := all
	all = largest(all, models)
	u := Usage{
		InputTokens: all.InputTokens, OutputTokens: all.OutputTokens, CacheReadTokens: all.CacheReadTokens,
		CacheWriteTokens: all.CacheWriteTokens, Turns: m.Turns,
	}
	if m.CostUSD != nil {
		u.CostUSD, all.Money = max(0, *m.CostUSD), belay.USDOf(*m.CostUSD)
	}
	r.usage, r.turns = &u, m.Turns
	r.meter.ended(own, all, m.CostUSD != nil)
	r.tell(Progress{Kind: "result", Name: m.Subtype})
}

func brief(s string) string {
	if len(s) <= maxBrief {
		return Shown(s)
	}
	return Shown(s[:maxBrief]) + "…"
}

// Shown returns an agent's text as valid UTF-8 without NUL, so that it can be stored and displayed.
func Shown(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// tail keeps the last maxAnswer bytes that are written to it.
type tail struct {
	b   []byte
	cut bool
}

func (t *tail) write(p []byte) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*maxAnswer {
		t.trim()
	}
}

func (t *tail) trim() {
	if len(t.b) <= maxAnswer {
		return
	}
	t.cut = true
	end := t.b[len(t.b)-maxAnswer:]
	for len(end) > 0 && !utf8.RuneStart(end[0]) {
		end = end[1:]
	}
	t.b = append([]byte(nil), end...)
}

func (t *tail) text() string {
	t.trim()
	return Shown(string(t.b))
}
