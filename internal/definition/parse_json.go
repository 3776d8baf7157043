package definition

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// parseJSON reads a document that is JSON. It returns false if the text is no JSON; YAML can read most of such texts.
func parseJSON(text []byte, r *report) (*node, bool) {
	if !json.Valid(text) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	p := jsonParser{converter: converter{report: r}, text: text, d: d, here: at{1, 1}}
	return p.value(0), true
}

// jsonParser makes nodes of the tokens of a valid JSON text.
type jsonParser struct {
	converter
	text []byte
	d    *json.Decoder
	// here is the position of the byte with the number seen.
	here at
	seen int
}

// next returns the next token and its position.
func (p *jsonParser) next() (json.Token, at) {
	from := int(p.d.InputOffset())
	t, err := p.d.Token()
	if err != nil {
		return nil, at{}
	}
	for from < len(p.text) && bytes.IndexByte([]byte(" \t\r\n,:"), p.text[from]) >= 0 {
		from++
	}
	for ; p.seen < from; p.seen++ {
		switch c := p.text[p.seen]; {
		case c == '\n':
			p.here = at{p.here.line + 1, 1}
		case utf8.RuneStart(c):
			p.here.column++
		}
	}
	return t, p.here
}

func (p *jsonParser) value(depth int) *node {
	t, pos := p.next()
	n := &node{at: pos}
	if p.nodes++; p.nodes > MaxNodes || depth > MaxDepth {
		p.limit(pos, depth)
	}
	switch v := t.(type) {
	case json.Delim:
		if v == '[' {
			n.kind = listNode
			for p.d.More() && !p.full {
				n.items = append(n.items, p.value(depth+1))
			}
		} else {
			n.kind = mapNode
			p.members(n, depth)
		}
		p.next() // the closing bracket
	case string:
		n.kind, n.value = textNode, v
		if bytes.IndexByte([]byte(v), 0) >= 0 {
			p.add(pos, "remove it", "the text contains a NUL character")
		}
	case bool:
		n.kind, n.value = boolNode, v
	case json.Number:
		p.number(n, v.String())
	}
	return n
}

func (p *jsonParser) members(n *node, depth int) {
	seen := make(map[string]at)
	for p.d.More() && !p.full {
		t, pos := p.next()
		name, _ := t.(string)
		value := p.value(depth + 1)
		if first, twice := seen[name]; twice {
			p.add(pos, "remove one of the two", "the key %q stands here twice, first in line %d", name, first.line)
			continue
		}
		seen[name] = pos
		n.keys, n.items = append(n.keys, key{pos, name}), append(n.items, value)
	}
}
