package httptask

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/secret"
)

// Response is the output of the workflow: an answer without secrets.
type Response struct {
	Status int `json:"status"`
	// Headers are the headers of the answer, with names in lower case. Several values of a name are
	// separated by commas. Cookies are left out, because they are credentials.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is the body: the JSON value if the content type is JSON, and otherwise the text. If the
	// body is neither, BodyBase64 has its bytes.
	Body       json.RawMessage `json:"body,omitempty"`
	BodyBase64 string          `json:"body_base64,omitempty"`
	// Truncated says that the body was longer than its limit, so that the rest is missing.
	Truncated bool `json:"truncated,omitempty"`
	// Redirects is the number of redirects that were followed.
	Redirects int `json:"redirects,omitempty"`
	// DurationMS is the duration from the beginning of the attempt to the end of the answer.
	DurationMS int64 `json:"duration_ms"`
	// Notes are remarks for the author of the request.
	Notes []string `json:"notes,omitempty"`
}

// overlap is how many bytes more than the limit are read, so that a secret at the limit is found as a
// whole.
const overlap = 128 << 10

// maxDepth is how many levels a JSON body may have; a deeper body is kept as text.
const maxDepth = 64

// read reads an answer.
func (c *call) read(resp *http.Response) (*Response, error) {
	hider := c.scope.Hider()
	a := &Response{Status: resp.StatusCode, Headers: headers(resp.Header, hider)}
	limit := c.in.MaxResponseBytes
	if limit == 0 {
		limit = DefaultResponse
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, limit+overlap))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	a.Truncated = int64(len(raw)) > limit
	encoded := resp.Header.Get("Content-Encoding") != "" && !resp.Uncompressed
	switch {
	case len(raw) == 0:
	case encoded && len(c.scope.Used()) > 0:
		// Secrets in a body with an encoding that was not asked for would not be found.
		a.Truncated = true
		c.notes = append(c.notes, "the body is left out, because it has an encoding that was not asked for")
	case encoded:
		a.BodyBase64 = base64.StdEncoding.EncodeToString(raw[:min(int64(len(raw)), limit)])
	case !a.Truncated && isJSON(resp.Header.Get("Content-Type")) && a.setJSON(raw, hider):
	default:
		clean := slices.Clone(hider.Pass(raw))
		if int64(len(raw)) < limit+overlap {
			clean = append(clean, hider.Rest()...)
		}
		a.setText(clean[:min(int64(len(clean)), limit)])
	}
	return a, nil
}

// headers returns the headers of an answer without secrets.
func headers(from http.Header, hider *secret.Hider) map[string]string {
	all := make(map[string]string, len(from))
	for name, values := range from {
		if name == "Set-Cookie" || name == "Set-Cookie2" {
			continue
		}
		text := strings.ToValidUTF8(hider.Text(strings.Join(values, ", ")), "\uFFFD")
		all[strings.ToLower(strings.ToValidUTF8(hider.Text(name), "\uFFFD"))] = text
	}
	return all
}

// isJSON reports whether a content type is JSON.
func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json"))
}

// setJSON sets the body to a JSON value without secrets. It returns false if the body is not JSON, or
// if it is JSON that a store cannot keep.
func (a *Response) setJSON(raw []byte, hider *secret.Hider) bool {
	if !json.Valid(raw) || !utf8.Valid(raw) {
		return false
	}
	var tree any
	if numbers(raw).Decode(&tree) != nil {
		return false
	}
	tree, ok := clean(tree, hider, maxDepth)
	if !ok {
		return false
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return false
	}
	a.Body = bytes.TrimSpace(b.Bytes())
	return true
}

// clean removes secrets from a decoded JSON value. It returns false if the value is too deep, or has a
// character that a store cannot keep.
func clean(v any, hider *secret.Hider, depth int) (any, bool) {
	if depth < 0 {
		return nil, false
	}
	switch v := v.(type) {
	case string:
		return hider.Text(v), !strings.ContainsRune(v, 0)
	case json.Number:
		if text := hider.Text(v.String()); text != v.String() {
			return text, true
		}
		return v, true
	case []any:
		for i := range v {
			var ok bool
			if v[i], ok = clean(v[i], hider, depth-1); !ok {
				return nil, false
			}
		}
		return v, true
	case map[string]any:
		all := make(map[string]any, len(v))
		for k, x := range v {
			x, ok := clean(x, hider, depth-1)
			if !ok || strings.ContainsRune(k, 0) {
				return nil, false
			}
			all[hider.Text(k)] = x
		}
		return all, true
	}
	return v, true
}

// setText sets the body to a text, or to bytes that are no text.
func (a *Response) setText(b []byte) {
	if a.Truncated { // a character may be cut at the limit
		for range utf8.UTFMax {
			if r, n := utf8.DecodeLastRune(b); r != utf8.RuneError || n != 1 {
				break
			}
			b = b[:len(b)-1]
		}
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		a.BodyBase64 = base64.StdEncoding.EncodeToString(b)
		return
	}
	text, err := json.Marshal(string(b))
	if err != nil {
		panic(err) // a text always marshals
	}
	a.Body = text
}

// text returns the body for an excerpt.
func (a *Response) text() string {
	var s string
	if json.Unmarshal(a.Body, &s) == nil {
		return s
	}
	return string(a.Body)
}

// fit shortens the body until the whole output fits into the store: JSON may need six bytes for a
// character.
func (a *Response) fit() {
	const most = belay.MaxPayload - 4<<10
	for {
		data, err := json.Marshal(a)
		if err == nil && len(data) <= most {
			return
		}
		a.Truncated = true
		text := a.text()
		switch {
		case a.BodyBase64 != "":
			a.BodyBase64 = a.BodyBase64[:len(a.BodyBase64)/8*4]
		case len(text) > 64:
			a.setText([]byte(text[:len(text)/2]))
		case a.Body != nil:
			a.Body = nil
		default:
			a.Headers, a.Notes = nil, nil
			return
		}
	}
}
