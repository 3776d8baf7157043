package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// capture collects the standard output of a step for its result.
type capture struct {
	as   string
	data []byte
	over bool
}

// newCapture returns nil if the output is not captured.
func newCapture(as string) *capture {
	if as == "" {
		return nil
	}
	return &capture{as: as}
}

// write adds output. It keeps MaxCapture bytes at most.
func (c *capture) write(p []byte) {
	if c == nil {
		return
	}
	room := MaxCapture - len(c.data)
	c.over = c.over || len(p) > room
	c.data = append(c.data, p[:min(len(p), room)]...)
}

// value returns the output as JSON; nil if it is not captured.
func (c *capture) value() (json.RawMessage, error) {
	v, err := c.encode()
	if err == nil && len(v) > 2*MaxCapture {
		return nil, fmt.Errorf("its standard output has more than %d bytes as JSON, so it cannot be captured",
			2*MaxCapture)
	}
	return v, err
}

func (c *capture) encode() (json.RawMessage, error) {
	switch {
	case c == nil:
		return nil, nil
	case c.over:
		return nil, fmt.Errorf("its standard output has more than %d bytes, so it cannot be captured", MaxCapture)
	case !utf8.Valid(c.data) || bytes.IndexByte(c.data, 0) >= 0:
		return nil, fmt.Errorf("its standard output is no UTF-8 text, so it cannot be captured")
	}
	text := strings.TrimSuffix(string(c.data), "\n")
	switch c.as {
	case "json":
		if !json.Valid(c.data) {
			return nil, fmt.Errorf("its standard output is not JSON: %.100q", text)
		}
		var b bytes.Buffer
		if err := json.Compact(&b, c.data); err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	case "lines":
		lines := []string{}
		if text != "" {
			lines = strings.Split(text, "\n")
		}
		return json.Marshal(lines)
	}
	return json.Marshal(text)
}
