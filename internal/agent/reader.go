package agent

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxAnswer is the most bytes kept of an answer; of a longer one the end is.
	maxAnswer = 256 << 10
	// maxLine is the longest line of structured output that is understood.
	maxLine = 4 << 20
	// maxBrief bounds the text of one step of progress.
	maxBrief = 2 << 10
)

// Usage is what an agent says it has used.
type Usage struct {
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	CostUSD      float64 `json:"cost_usd,omitempty"`
	Turns        int     `json:"turns,omitempty"`
}

// Total is all tokens together.
func (u Usage) Total() int64 { return u.InputTokens + u.OutputTokens }

// Progress is one thing that an agent did, as its structured output tells it.
type Progress struct {
	// Kind is text, tool, tool_result, system or result.
	Kind string `json:"kind"`
	// Name is that of the tool.
	Name string `json:"name,omitempty"`
	// Text is the beginning of what was said.
	Text string `json:"text,omitempty"`
}

// reader understands what an agent writes to its standard output: plain text, or
// JSON objects line by line, as Claude Code's stream-json has them. A line that
// is none of those it knows is passed over; nothing an agent writes is an error.
type reader struct {
	form string // OutputAuto until it is decided
	tell func(Progress)
	said func([]byte) // is given what the agent says as it comes; nil for nobody

	lines  lines
	head   []byte // before the form is decided
	answer tail
	speech speech
	final  *string // what a result said
	usage  *Usage
	failed bool // the result said that it is an error
	// denied are the tools that the agent was not permitted to use, and session is the
	// conversation as the agent calls it.
	denied  []string
	session string
}

func newReader(form string, tell func(Progress), said func([]byte)) *reader {
	r := &reader{form: form, tell: tell, said: said, speech: speech{tell: said}}
	r.lines = lines{most: maxLine, each: r.line}
	return r
}

// write takes standard output as it comes.
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

// end is called after the last write.
func (r *reader) end() {
	if r.form == OutputAuto {
		trimmed := bytes.TrimSpace(r.head)
		r.decide(trimmed, bytes.IndexByte(trimmed, '\n'))
	}
	r.lines.end()
}

// text is the answer, and whether its beginning was cut off.
func (r *reader) text() (string, bool) {
	if r.form != OutputStreamJSON {
		return r.answer.text(), r.answer.cut
	}
	var t tail
	if r.final != nil {
		t.write([]byte(*r.final))
	} else {
		t.write(r.speech.last) // no result came
	}
	return t.text(), t.cut
}

// message is a line of stream-json, as far as it is of use.
type message struct {
	Type    string  `json:"type"`
	Subtype string  `json:"subtype"`
	Result  *string `json:"result"`
	IsError bool    `json:"is_error"`
	Turns   int     `json:"num_turns"`
	CostUSD float64 `json:"total_cost_usd"`
	Usage   *struct {
		Input    int64 `json:"input_tokens"`
		Created  int64 `json:"cache_creation_input_tokens"`
		FromRead int64 `json:"cache_read_input_tokens"`
		Output   int64 `json:"output_tokens"`
	} `json:"usage"`
	// Message is a spoken, or a text.
	Message json.RawMessage `json:"message"`
	// Within names the call of the agent for which another agent works.
	Within string          `json:"parent_tool_use_id"`
	Event  json.RawMessage `json:"event"`
	// Session is told by init, Tool and Denials when a permission was denied: at once,
	// and again with the result.
	Session string `json:"session_id"`
	Tool    string `json:"tool_name"`
	Denials []struct {
		Tool string `json:"tool_name"`
	} `json:"permission_denials"`
}

// spoken is what the agent or a tool said.
type spoken struct {
	ID      string          `json:"id"`
	Content json.RawMessage `json:"content"`
}

// The subtypes of system messages that are of use.
const (
	systemInit   = "init"
	systemDenied = "permission_denied"
)

// maxDenied bounds how many tools are named, and maxName their names.
const (
	maxDenied = 20
	maxName   = 100
)

// block is a part of what the agent or a tool said.
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
	case "system":
		r.system(&m)
	case "result":
		r.result(&m)
	}
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

// deny notes a tool that the agent was not permitted to use, once.
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

// blocksOf reads content, which is a text or a list.
func blocksOf(content json.RawMessage) []block {
	var all []block
	var text string
	if json.Unmarshal(content, &text) == nil && text != "" {
		return []block{{Type: "text", Text: text}}
	}
	_ = json.Unmarshal(content, &all) // what it does not understand it leaves out
	return all
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
	u := Usage{CostUSD: m.CostUSD, Turns: m.Turns}
	if m.Usage != nil {
		u.InputTokens = m.Usage.Input + m.Usage.Created + m.Usage.FromRead
		u.OutputTokens = m.Usage.Output
	}
	r.usage = &u
	r.tell(Progress{Kind: "result", Name: m.Subtype})
}

func brief(s string) string {
	if len(s) <= maxBrief {
		return Shown(s)
	}
	return Shown(s[:maxBrief]) + "…"
}

// Shown is what an agent wrote as it can be stored and shown: valid, and without NUL.
func Shown(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// tail keeps the end of what is written to it.
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
