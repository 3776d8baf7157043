package httptask

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/internal/secretref"
)

// call is a request with its secrets, ready to be sent.
type call struct {
	in     *Request
	scope  *secretref.Scope
	method string
	url    *url.URL
	target reach.Target
	header http.Header
	body   []byte
	// private says that the body contains secrets.
	private bool
	// own names the secret that is the whole URL, and may therefore be sent to its host; "" for none.
	own string
	// shown is the URL without its query and its secrets, for messages.
	shown string
	notes []string
	// stripped says that a redirect has led to another origin, so that the request has no secrets any more.
	stripped bool
}

// travelling are the headers that are sent to another origin after a redirect, if they contain no
// secret. All other headers of a request may be credentials.
var travelling = []string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}

// prepare resolves the secrets of a request. Its errors contain no secret.
// The headers of the request override those of the trace.
func prepare(in *Request, scope *secretref.Scope, key, agent string, trace belay.Trace) (*call, error) {
	c := &call{in: in, scope: scope, method: in.method(), header: http.Header{}}
	c.shown, _, _ = strings.Cut(secretref.Shown(in.URL), "?")
	c.header.Set("User-Agent", agent)
	if trace.Parent != "" {
		c.header.Set("traceparent", trace.Parent)
		if trace.State != "" {
			c.header.Set("tracestate", trace.State)
		}
	}
	if err := c.prepareURL(); err != nil {
		return nil, err
	}
	if err := c.prepareBody(); err != nil {
		return nil, err
	}
	if name := in.keyHeader(); name != "" && key != "" {
		c.header.Set(name, key)
	}
	for name, value := range in.Headers {
		if err := c.set(name, value); err != nil {
			return nil, err
		}
	}
	err := c.authorize()
	return c, err
}

// keyHeader returns the name of the header with the idempotency key; "" for none.
func (r *Request) keyHeader() string {
	switch {
	case r.IdempotencyKeyHeader != nil:
		return *r.IdempotencyKeyHeader
	case slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.method()):
		return ""
	}
	return defaultKeyHeader
}

// set resolves and sets a header.
func (c *call) set(name, value string) error {
	resolved, err := c.scope.Resolve(value)
	if err != nil {
		return err
	}
	if !isHeaderValue(resolved) {
		return belay.Permanent(invalid("a secret in the header %s contains a line break or another control character",
			name))
	}
	c.header.Set(name, resolved)
	return nil
}

// authorize sets the header Authorization.
func (c *call) authorize() error {
	switch a := c.in.Auth; {
	case a == nil:
		return nil
	case a.Bearer != "":
		return c.set("Authorization", "Bearer "+a.Bearer)
	default:
		user, err := c.scope.Resolve(a.Basic.User)
		if err != nil {
			return err
		}
		password, err := c.scope.Resolve(a.Basic.Password)
		if err != nil {
			return err
		}
		text := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		c.scope.Hide("auth", text)
		c.header.Set("Authorization", "Basic "+text)
		return nil
	}
}

var errSecretURL = invalid("the url is not valid with the secret in it; it must be an http or https URL without a " +
	"user name or password, such as https://api.example.org/v1/items")

// prepareURL resolves the URL and the query.
func (c *call) prepareURL() error {
	text, err := c.scope.Resolve(c.in.URL)
	if err != nil {
		return err
	}
	if c.url, c.target, err = parseURL(text); err != nil {
		if refers(c.in.URL) {
			err = errSecretURL // the reason may quote a part of the secret
		}
		return belay.Permanent(err)
	}
	if err := c.owned(); err != nil {
		return err
	}
	added := url.Values{}
	for name, values := range c.in.Query {
		for _, v := range values {
			if v, err = c.scope.Resolve(v); err != nil {
				return err
			}
			added.Add(name, v)
		}
	}
	if len(added) > 0 {
		c.url.RawQuery = strings.TrimPrefix(c.url.RawQuery+"&"+added.Encode(), "&")
	}
	return nil
}

// owned finds out whether the URL, or its beginning, is a secret that is a URL itself. Such a secret
// may be sent to the host that it names. Its path and query must not be shown either.
func (c *call) owned() error {
	plain, begins, _ := secretref.Plain(c.in.URL)
	if !begins || plain == "" {
		return nil
	}
	name := secretref.Names(c.in.URL)[0]
	value, err := c.scope.Value(name)
	if err != nil {
		return err
	}
	if _, t, err := parseURL(value); err != nil || t != c.target {
		return nil //nolint:nilerr // the secret is no URL, so CheckHost decides about the host
	}
	c.own = name
	for _, part := range []string{c.url.EscapedPath(), c.url.Path, c.url.RawQuery} {
		if len(part) >= 8 {
			c.scope.Hide(name, part)
		}
	}
	return nil
}

// prepareBody makes the body, and its content type unless the request has one.
func (c *call) prepareBody() error {
	var kind string
	var err error
	switch in := c.in; {
	case in.Form != nil:
		form := url.Values{}
		for name, values := range in.Form {
			for _, v := range values {
				if v, err = c.fill(v); err != nil {
					return err
				}
				form.Add(name, v)
			}
		}
		c.body, kind = []byte(form.Encode()), "application/x-www-form-urlencoded"
	case in.BodyBase64 != "":
		c.body, err = base64.StdEncoding.DecodeString(in.BodyBase64)
		kind = "application/octet-stream"
	case in.Body != nil:
		kind, err = c.jsonBody(in.Body)
	}
	if kind != "" {
		c.header.Set("Content-Type", kind)
	}
	return err
}

// jsonBody makes the body from a JSON value.
func (c *call) jsonBody(value json.RawMessage) (kind string, err error) {
	var text string
	if json.Unmarshal(value, &text) == nil && bytes.HasPrefix(bytes.TrimSpace(value), []byte(`"`)) {
		text, err = c.fill(text)
		c.body = []byte(text)
		return "text/plain; charset=utf-8", err
	}
	if len(c.in.BodySecrets) == 0 {
		c.note(string(value))
		var b bytes.Buffer
		err = json.Compact(&b, value)
		c.body = b.Bytes()
		return "application/json", err
	}
	var tree any
	if err = numbers(value).Decode(&tree); err == nil {
		tree, err = mapTexts(tree, c.fill)
	}
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err = e.Encode(tree)
	c.body = bytes.TrimSpace(b.Bytes())
	return "application/json", err
}

// fill resolves the references of a text in the body to the secrets that BodySecrets names.
func (c *call) fill(text string) (string, error) {
	resolved, err := c.scope.ResolveOnly(text, c.in.BodySecrets)
	if err != nil {
		return "", err
	}
	c.private = c.private || resolved != text
	c.note(resolved)
	return resolved, nil
}

// note tells the user about a reference in the body that was sent as text.
func (c *call) note(text string) {
	for _, name := range secretref.References(text) {
		if !slices.Contains(c.in.BodySecrets, name) && len(c.notes) < 10 {
			c.notes = append(c.notes, "the body refers to the secret "+name+", which was sent as text, because "+
				"body_secrets does not list it")
		}
	}
}

// mapTexts returns a JSON value with a function applied to each of its texts, except for the keys of
// objects.
func mapTexts(v any, f func(string) (string, error)) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		for i := range v {
			if v[i], err = mapTexts(v[i], f); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = mapTexts(v[k], f); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
