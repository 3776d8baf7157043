package agent

import (
	"bytes"
	"encoding/json"
)

// speech collects the texts of an agent from structured output, in their order and separated by
// empty lines. It omits the texts of subagents. If a text arrives in pieces (stream_event) and
// again as a whole message (assistant), speech passes it on once. It passes on the final text
// (result) only if that text differs from the last text, which it usually repeats.
type speech struct {
	tell func([]byte) // gets the texts; may be nil

	begun  bool   // a text was already passed on
	next   bool   // whether the next text begins a new part
	last   []byte // the last part, as far as it has arrived
	stream string // id of the message that is arriving in pieces
	pieces string // id of the last message whose pieces were passed on
}

// event is a line of structured output with a piece of a message that the agent is still writing.
type event struct {
	Type    string `json:"type"`
	Message struct {
		ID string `json:"id"`
	} `json:"message"`
	Delta struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"delta"`
}

// piece handles a line with a piece of a message that the agent is still writing.
func (s *speech) piece(of json.RawMessage) {
	var e event
	if json.Unmarshal(of, &e) != nil {
		return
	}
	switch e.Type {
	case "message_start":
		s.stream, s.next = e.Message.ID, true
	case "content_block_start":
		s.next = true
	case "content_block_delta":
		// Pieces without a message id are ignored, because they could not be matched with the whole
		// message.
		if e.Delta.Type == "text_delta" && s.stream != "" {
			s.pieces = s.stream
			s.more(e.Delta.Text)
		}
	}
}

// part handles a text that arrives as a whole. It does not pass on a text whose pieces have arrived
// before.
func (s *speech) part(id, text string) {
	s.next = true
	if id != "" && id == s.pieces {
		s.last = []byte(text)
		return
	}
	s.more(text)
	s.next = true
}

// final handles the text that the agent reports as its result.
func (s *speech) final(text string) {
	rest := []byte(text)
	s.next = true
	if len(s.last) > 0 && bytes.HasPrefix(rest, s.last) {
		s.next, rest = false, rest[len(s.last):]
	}
	s.more(string(rest))
}

func (s *speech) more(said string) {
	if said == "" {
		return
	}
	if s.next {
		s.next, s.last = false, nil
		if s.begun {
			s.say("\n\n")
		}
	}
	s.begun = true
	if len(s.last)+len(said) <= maxLine {
		s.last = append(s.last, said...)
	}
	s.say(said)
}

func (s *speech) say(said string) {
	if s.tell != nil {
		s.tell([]byte(Shown(said)))
	}
}
