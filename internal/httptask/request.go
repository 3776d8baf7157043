package httptask

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/internal/secretref"
)

// Workflow is the name of the workflow.
const Workflow = "http"

// Limits of a request.
const (
	// DefaultTimeout and MaxTimeout are the time limit of one attempt: if the request names none, and
	// the longest that it may name.
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = time.Hour
	// DefaultResponse and MaxResponse are the size up to which the body of an answer is kept, in
	// bytes: if the request names none, and the largest that it may name.
	DefaultResponse = 256 << 10
	MaxResponse     = 768 << 10
	// DefaultRedirects and MaxRedirects are the number of redirects that are followed: if the request
	// names none, and the largest that it may name.
	DefaultRedirects = 5
	MaxRedirects     = 20

	// maxURL is the maximum size of a URL, and maxHeaders of the headers of a request, in bytes.
	maxURL     = 16 << 10
	maxHeaders = 32 << 10
)

// defaultKeyHeader is the header of the idempotency key if the request names none.
const defaultKeyHeader = "Idempotency-Key"

// Request is the input of the workflow. References such as ${{ secrets.NAME }} stand for secrets in
// URL, Query, Headers, Auth and SigningSecret, and for the secrets in BodySecrets also in the body.
type Request struct {
	// Method is the method; empty for POST if there is a body, and otherwise for GET.
	Method string `json:"method,omitempty"`
	// URL is an http or https URL without credentials. A secret may be the whole URL, or a part of its
	// path or query.
	URL string `json:"url"`
	// Query has parameters that are added to the query of the URL.
	Query map[string]Values `json:"query,omitempty"`
	// Headers are the headers of the request.
	Headers map[string]string `json:"headers,omitempty"`
	// Auth makes the header Authorization.
	Auth *Auth `json:"auth,omitempty"`
	// Body is the body of the request: a JSON string is sent as text, and every other JSON value as
	// JSON. Null means no body. Form is a body in the form of a web form, and BodyBase64 is a body of bytes. A request
	// has at most one of the three.
	Body       json.RawMessage   `json:"body,omitempty"`
	Form       map[string]Values `json:"form,omitempty"`
	BodyBase64 string            `json:"body_base64,omitempty"`
	// BodySecrets names the secrets whose references in Body or Form are resolved. All other text
	// there is sent as it is, because a body often has data of other people.
	BodySecrets []string `json:"body_secrets,omitempty"`
	// SigningSecret signs the body as Standard Webhooks describes: with the headers webhook-id,
	// webhook-timestamp and webhook-signature. The secret is text, or whsec_ and Base64.
	SigningSecret string `json:"signing_secret,omitempty"`

	// Expect are the statuses of a success; nil for 200 to 299.
	Expect Statuses `json:"expect,omitempty"`
	// RetryOn are the statuses after which the request is tried again, unless they are expected; nil
	// for 408, 425, 429, 500, 502, 503 and 504, and an empty list for none.
	RetryOn Statuses `json:"retry_on,omitzero"`
	// Timeout is the time limit of one attempt, from the resolution of the name to the last byte of
	// the answer; 0 for DefaultTimeout.
	Timeout belay.Duration `json:"timeout,omitempty"`
	// MaxResponseBytes is the size up to which the body of the answer is kept; 0 for DefaultResponse.
	MaxResponseBytes int64 `json:"max_response_bytes,omitempty"`
	// MaxRedirects is the number of redirects that are followed; nil for DefaultRedirects.
	MaxRedirects *int `json:"max_redirects,omitempty"`
	// IdempotencyKeyHeader is the header with the idempotency key; nil for Idempotency-Key if the
	// method can change something (not GET, HEAD or OPTIONS), and "" for none.
	IdempotencyKeyHeader *string `json:"idempotency_key_header,omitempty"`
}

// Auth is the credential of a request: one of its fields.
type Auth struct {
	Bearer string `json:"bearer,omitempty"`
	Basic  *Basic `json:"basic,omitempty"`
}

// Basic is a user name and a password.
type Basic struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// Values are the values of a parameter. In JSON they may also be a single text, number or bool.
type Values []string

// UnmarshalJSON reads one value or a list of values.
func (v *Values) UnmarshalJSON(data []byte) error {
	var list []any
	if d := numbers(data); d.Decode(&list) != nil {
		var single any
		if err := numbers(data).Decode(&single); err != nil {
			return err
		}
		list = []any{single}
	}
	all := make(Values, 0, len(list))
	for _, x := range list {
		switch x := x.(type) {
		case string:
			all = append(all, x)
		case json.Number:
			all = append(all, x.String())
		case bool:
			all = append(all, strconv.FormatBool(x))
		default:
			return invalid("the value of a parameter is a text, a number, a bool, or a list of these")
		}
	}
	*v = all
	return nil
}

// numbers returns a decoder that keeps numbers as they are written.
func numbers(data []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d
}

// CheckInput returns an error for an input with which the workflow cannot run, or that contains a
// credential. It is called before the input is stored.
func CheckInput(input json.RawMessage) error {
	_, err := decode(input)
	return err
}

// decode reads an input. It refuses unknown fields, and fields whose name differs in case.
func decode(input json.RawMessage) (*Request, error) {
	r := &Request{}
	if len(bytes.TrimSpace(input)) == 0 {
		return nil, invalid(`the input is empty; it needs a url at least, as in {"url": "https://example.org"}`)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, invalid(`the input is not an object such as {"url": "https://example.org"}`)
	}
	var known []string
	for f := range reflect.TypeFor[Request]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known = append(known, name)
	}
	for name := range fields {
		if !slices.Contains(known, name) {
			return nil, invalid("the input has the unknown field %s; the fields are %s", reach.Printable(name),
				strings.Join(known, ", "))
		}
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, badInput(err)
	}
	if string(bytes.TrimSpace(r.Body)) == "null" {
		r.Body = nil
	}
	err := r.Check()
	return r, err
}

func badInput(err error) error {
	var ours *belay.Error
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &ours):
		return ours
	case errors.As(err, &wrong):
		return invalid("the field %s of the input cannot be a %s", reach.Printable(wrong.Field), wrong.Value)
	}
	return invalid("the input cannot be read: %s", reach.Printable(err.Error()))
}

// Check returns an error for a request that could not be sent, or that contains a credential.
func (r *Request) Check() error {
	if err := errors.Join(r.checkURL(), r.checkMethod(), r.checkHeaders(), r.checkBody()); err != nil {
		return first(err)
	}
	switch {
	case r.Timeout < 0 || r.Timeout.D() > MaxTimeout:
		return invalid("the timeout is %s; it can be up to %s", r.Timeout.D(), MaxTimeout)
	case r.MaxResponseBytes < 0 || r.MaxResponseBytes > MaxResponse:
		return invalid("max_response_bytes is %d; it can be up to %d", r.MaxResponseBytes, MaxResponse)
	case r.MaxRedirects != nil && (*r.MaxRedirects < 0 || *r.MaxRedirects > MaxRedirects):
		return invalid("max_redirects is %d; it can be 0 to %d", *r.MaxRedirects, MaxRedirects)
	}
	return nil
}

// first returns the first of several joined errors.
func first(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()[0]
	}
	return err
}

var errURL = invalid("the url must be an http or https URL, such as https://api.example.org/v1/items")

func (r *Request) checkURL() error {
	if len(r.URL) > maxURL {
		return invalid("the url has %d bytes; the limit is %d", len(r.URL), maxURL)
	}
	plain, secret, err := secretref.Plain(r.URL)
	switch {
	case err != nil:
		return err
	case secret:
		return nil // only the secret says which host it is
	}
	if scheme, rest, ok := strings.Cut(r.URL, "://"); ok {
		host := rest
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			host = rest[:i]
		}
		if strings.Contains(scheme+host, "${{") {
			return invalid("a secret may be the whole url, or a part of its path or query, but not a part of its host")
		}
	}
	_, _, err = parseURL(plain)
	return err
}

// parseURL reads a URL, and returns it with the host in canonical form. The error contains
// no part of the URL, except that it may quote a part of the host that is not valid.
func parseURL(text string) (*url.URL, reach.Target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Host == "" {
		return nil, reach.Target{}, errURL
	}
	if u.User != nil {
		return nil, reach.Target{}, invalid("the url contains a user name or password; put them into auth, with a " +
			`reference to a secret, as in {"auth": {"basic": {"user": "me", "password": "${{ secrets.PASSWORD }}"}}}`)
	}
	t, err := targetOf(u)
	if err != nil {
		return nil, t, invalid("the host of the url is not valid: %s", err)
	}
	u.Fragment, u.RawFragment = "", ""
	u.Host = t.String()
	if standard := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; strings.HasSuffix(u.Host, standard) {
		u.Host = strings.TrimSuffix(u.Host, standard)
	}
	return u, t, nil
}

// targetOf returns the host and port of a URL.
func targetOf(u *url.URL) (reach.Target, error) {
	return reach.ParseTarget(u.Host, map[string]int{"http": 80, "https": 443}[u.Scheme])
}

func (r *Request) method() string {
	switch {
	case r.Method != "":
		return r.Method
	case r.hasBody():
		return http.MethodPost
	}
	return http.MethodGet
}

func (r *Request) hasBody() bool { return r.Body != nil || r.Form != nil || r.BodyBase64 != "" }

func (r *Request) checkMethod() error {
	m := r.method()
	if m == http.MethodConnect || m == http.MethodTrace || len(m) > 20 ||
		strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return invalid("the method %s is not possible; write GET, POST, PUT, PATCH, DELETE, HEAD or OPTIONS, in "+
			"capitals",
			reach.Printable(m))
	}
	if r.hasBody() && (m == http.MethodGet || m == http.MethodHead) {
		return invalid("a %s request has no body; use POST, PUT or PATCH", m)
	}
	return nil
}

// ownHeaders are headers that belong to the connection, or that Belay sets itself.
var ownHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Http2-Settings", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature",
}

func (r *Request) checkHeaders() error {
	size := 0
	for name, value := range r.Headers {
		key := http.CanonicalHeaderKey(name)
		plain, _, err := secretref.Plain(value)
		switch {
		case err != nil:
			return fmt.Errorf("the header %s: %w", reach.Printable(name), err)
		case !isToken(name):
			return invalid("%s is not the name of a header", reach.Printable(name))
		case !isHeaderValue(plain):
			return invalid("the header %s contains a line break or another control character", name)
		case slices.Contains(ownHeaders, key) || strings.HasPrefix(key, "Proxy-"):
			return invalid("the header %s cannot be set: Belay sets it itself", name)
		case key == "Authorization" && r.Auth != nil:
			return invalid("give auth, or the header Authorization, not both")
		}
		size += len(name) + len(value)
	}
	if size > maxHeaders {
		return invalid("the headers have %d bytes; the limit is %d", size, maxHeaders)
	}
	if h := r.IdempotencyKeyHeader; h != nil && *h != "" {
		key := http.CanonicalHeaderKey(*h)
		if !isToken(*h) || slices.Contains(ownHeaders, key) || strings.HasPrefix(key, "Proxy-") ||
			key == "Authorization" {
			return invalid("idempotency_key_header cannot be %s", reach.Printable(*h))
		}
	}
	return r.checkReferences()
}

// checkReferences checks the references outside of the URL, the headers and the body.
func (r *Request) checkReferences() error {
	texts := []string{r.SigningSecret}
	if r.Auth != nil {
		if (r.Auth.Bearer == "") == (r.Auth.Basic == nil) {
			return invalid("auth has either bearer or basic")
		}
		texts = append(texts, r.Auth.Bearer)
		if r.Auth.Basic != nil {
			texts = append(texts, r.Auth.Basic.User, r.Auth.Basic.Password)
		}
	}
	for _, values := range r.Query {
		texts = append(texts, values...)
	}
	for _, text := range texts {
		if err := secretref.Check(text); err != nil {
			return err
		}
	}
	return r.checkCredentials()
}

// checkCredentials returns an error if the input contains a credential instead of a reference.
func (r *Request) checkCredentials() error {
	plain := r.SigningSecret != "" && !refers(r.SigningSecret)
	if a := r.Auth; a != nil {
		plain = plain || !refers(a.Bearer) && (a.Basic == nil || !refers(a.Basic.User) && !refers(a.Basic.Password))
	}
	for name, value := range r.Headers {
		plain = plain || http.CanonicalHeaderKey(name) == "Authorization" && !refers(value)
	}
	if plain {
		return invalid("auth, signing_secret and the header Authorization must refer to secrets, as in " +
			"${{ secrets.API_TOKEN }}, because Belay stores the input")
	}
	return nil
}

// refers reports whether a text refers to a secret.
func refers(text string) bool { return len(secretref.Names(text)) > 0 }

func (r *Request) checkBody() error {
	bodies := 0
	for _, has := range []bool{r.Body != nil, r.Form != nil, r.BodyBase64 != ""} {
		if has {
			bodies++
		}
	}
	if bodies > 1 {
		return invalid("give one of body, form and body_base64")
	}
	if _, err := base64.StdEncoding.DecodeString(r.BodyBase64); err != nil {
		return invalid("body_base64 is not Base64")
	}
	return nil
}

// isToken reports whether a text can be the name of a header.
func isToken(s string) bool {
	return s != "" && len(s) <= 200 && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// isHeaderValue reports whether a text can be the value of a header.
func isHeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

func invalid(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}
