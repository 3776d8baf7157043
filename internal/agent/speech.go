package agent

import (
	"bytes"
	"encoding/json"
)

// speech is what an agent says in structured output, in order: every text that is
// no other agent's, an empty line between two. A text may come in pieces
// (stream_event) and again whole with its message (assistant): it is told once. The
// final text (result) is normally the last part, and is told where it is not.
type speech struct {
	tell func([]byte) // nil for nobody

	begun  bool   // something was told
	next   bool   // what comes is a new part
	last   []byte // the last part, as far as it is known
	stream string // the id of the message that comes in pieces
	pieces string // the id of the last message of which pieces were told
}

// event is a piece of a message that is still being made.
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

// piece takes a piece of a message.
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
		// Without an id its message could not be told from another when it comes whole.
		if e.Delta.Type == "text_delta" && s.stream != "" {
			s.pieces = s.stream
			s.more(e.Delta.Text)
		}
	}
}

// part takes a whole text of a message.
func (s *speech) part(id, text string) {
	s.next = true
	if id != "" && id == s.pieces {
		s.last = []byte(text)
		return
	}
	s.more(text)
	s.next = true
}

// final takes the text that the agent calls its result.
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
