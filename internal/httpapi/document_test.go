package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document that a server emits, and a record of the answers that tests have
// checked.
type document struct {
	t      testing.TB
	raw    map[string]any
	routes []documentedRoute
	*checked
}

// checked is the state that tests share when they use one document at the same time.
type checked struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // compiled schemas, by their texts
	seen     map[string]bool               // operations and statuses, such as "GET /path 200"
}

// of returns a copy of the document that reports faults to the test t.
func (d *document) of(t testing.TB) *document {
	c := *d
	c.t = t
	return &c
}

type documentedRoute struct {
	method, path string
	match        *regexp.Regexp
	operation    map[string]any
}

// noLoader refuses to load a document to which the OpenAPI document refers.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, fmt.Errorf("%s: nothing is loaded", url) }

func documentOf(t testing.TB, s *server) *document {
	t.Helper()
	d, err := parse(s.want(http.StatusOK, nil, http.MethodGet, "/openapi.json", "").body)
	if err != nil {
		t.Fatal(err)
	}
	return d.of(t)
}

// parse reads a document.
func parse(text []byte) (*document, error) {
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &document{raw: raw.(map[string]any), checked: &checked{
		compiler: jsonschema.NewCompiler(), schemas: make(map[string]*jsonschema.Schema), seen: make(map[string]bool),
	}}
	d.compiler.UseLoader(noLoader{})
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("http://belay.test/openapi.json", raw); err != nil {
		return nil, err
	}
	paths, _ := d.raw["paths"].(map[string]any)
	for path, item := range paths {
		form := regexp.MustCompile(`\\\{[^}]*\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`)
		for method, op := range item.(map[string]any) {
			d.routes = append(d.routes, documentedRoute{
				strings.ToUpper(method), path, regexp.MustCompile("^" + form + "$"), op.(map[string]any),
			})
		}
	}
	// Paths with fewer parameters come first: lock/steal before lock/{id}.
	slices.SortFunc(d.routes, func(a, b documentedRoute) int {
		if n := strings.Count(a.path, "{") - strings.Count(b.path, "{"); n != 0 {
			return n
		}
		return strings.Compare(a.path+a.method, b.path+b.method)
	})
	return d, nil
}

// route finds the operation to which a request belongs.
func (d *document) route(method, path string) (documentedRoute, bool) {
	path, _, _ = strings.Cut(path, "?")
	for _, r := range d.routes {
		if r.method == method && r.match.MatchString(path) {
			return r, true
		}
	}
	return documentedRoute{}, false
}

// contract is the OpenAPI document in the golden file. The tests check every answer of the server
// against it.
func contract(t testing.TB) *document {
	t.Helper()
	return goldenDocument().of(t)
}

var goldenDocument = sync.OnceValue(func() *document {
	text, err := os.ReadFile(golden)
	if err != nil {
		panic(err)
	}
	d, err := parse(text)
	if err != nil {
		panic(err)
	}
	return d
})

// checkKnown checks an answer against the document if the document has the route of the request.
func (d *document) checkKnown(method, path string, a *answer) {
	d.t.Helper()
	if _, ok := d.route(method, path); ok && !*update {
		d.check(method, path, a)
	}
}

// check compares an answer with the document's description of answers of this route with this
// status.
func (d *document) check(method, path string, a *answer) {
	d.t.Helper()
	r, ok := d.route(method, path)
	if a.StatusCode == http.StatusMethodNotAllowed { // any operation of the path documents the status 405
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if !ok {
				r, ok = d.route(method, path)
			}
		}
	}
	if !ok {
		d.t.Errorf("%s %s is not in the document", method, path)
		return
	}
	responses, _ := r.operation["responses"].(map[string]any)
	response, ok := d.resolve(responses[fmt.Sprint(a.StatusCode)])
	if !ok {
		d.t.Errorf("%s %s answers %d, which the document does not have: %s", r.method, r.path, a.StatusCode, a.body)
		return
	}
	d.mu.Lock()
	d.seen[fmt.Sprintf("%s %s %d", r.method, r.path, a.StatusCode)] = true
	d.mu.Unlock()
	d.checkHeaders(fmt.Sprintf("%s %s %d", r.method, r.path, a.StatusCode), response, a.Header)
	body := a.body
	if a.Header.Get("Content-Encoding") == "gzip" {
		body = unzipped(d.t, body)
	}
	content, _ := response["content"].(map[string]any)
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch media, ok := content[kind].(map[string]any); {
	case len(content) == 0:
		if len(body) > 0 {
			d.t.Errorf("%s %s %d has a body that the document does not have: %s", r.method, r.path, a.StatusCode,
				body)
		}
	case !ok:
		d.t.Errorf("%s %s %d is of type %q, which the document does not have", r.method, r.path, a.StatusCode, kind)
	case strings.HasSuffix(kind, "json"):
		if err := d.validate(media["schema"], body); err != nil {
			d.t.Errorf("%s %s %d: %v\n%s", r.method, r.path, a.StatusCode, err, body)
		}
	case kind == "text/event-stream":
		if err := d.validate(media["schema"], eventsOf(body)); err != nil {
			d.t.Errorf("%s %s %d: %v\n%s", r.method, r.path, a.StatusCode, err, body)
		}
	}
}

// general are headers that have the same meaning in all answers; the document does not list them.
var general = []string{
	"Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Security-Policy", "Content-Type",
	"Date", "Referrer-Policy", "Vary", "X-Accel-Buffering", "X-Content-Type-Options",
}

// checkHeaders checks the headers of an answer against the document: each header is documented, the
// required headers are there, and the values match their schemas.
func (d *document) checkHeaders(at string, response map[string]any, got http.Header) {
	d.t.Helper()
	headers, _ := response["headers"].(map[string]any)
	known := make(map[string]map[string]any)
	for name, h := range headers {
		h, _ := d.resolve(h)
		known[http.CanonicalHeaderKey(name)] = h
		if required, _ := h["required"].(bool); required && got.Get(name) == "" {
			d.t.Errorf("%s lacks the header %s", at, name)
		}
	}
	for name := range got {
		h, ok := known[name]
		if !ok {
			if !slices.Contains(general, name) && !strings.HasPrefix(name, "Access-Control-") {
				d.t.Errorf("%s has the header %s: %q, which the document does not have", at, name, got.Get(name))
			}
			continue
		}
		value := []byte(got.Get(name))
		if schema, _ := d.resolve(h["schema"]); schema["type"] != "integer" {
			value, _ = json.Marshal(string(value))
		}
		if err := d.validate(h["schema"], value); err != nil {
			d.t.Errorf("%s: the header %s: %v", at, name, err)
		}
	}
}

// eventsOf reads a stream of server-sent events as the array that the document describes.
func eventsOf(text []byte) []byte {
	list := []map[string]any{}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		event := make(map[string]any)
		for line := range strings.SplitSeq(block, "\n") {
			name, value, ok := strings.Cut(line, ": ")
			switch {
			case !ok || name == "" || name == "retry": // a comment, or the delay before the client connects again
			case name == "data" && json.Valid([]byte(value)):
				event[name] = json.RawMessage(value)
			default:
				event[name] = value
			}
		}
		if len(event) > 0 {
			list = append(list, event)
		}
	}
	out, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return out
}

// checkBody checks a request's body against the document.
func (d *document) checkBody(method, path, body string) {
	d.t.Helper()
	r, ok := d.route(method, path)
	if !ok || body == "" {
		return
	}
	request, _ := r.operation["requestBody"].(map[string]any)
	content, _ := request["content"].(map[string]any)
	media, ok := content["application/json"].(map[string]any)
	if !ok {
		d.t.Errorf("%s %s takes no body in the document", r.method, r.path)
		return
	}
	if err := d.validate(media["schema"], []byte(body)); err != nil {
		d.t.Errorf("%s %s: the body %s: %v", r.method, r.path, body, err)
	}
}

// checkQuery checks the parameters in the query of a request.
func (d *document) checkQuery(method, path string) {
	d.t.Helper()
	r, ok := d.route(method, path)
	target, err := url.Parse(path)
	if !ok || err != nil {
		return
	}
	known := make(map[string]map[string]any)
	all, _ := r.operation["parameters"].([]any)
	for _, p := range all {
		if p, _ := d.resolve(p); p["in"] == "query" {
			known[p["name"].(string)], _ = d.resolve(p["schema"])
		}
	}
	for name, values := range target.Query() {
		schema, ok := known[name]
		if !ok {
			d.t.Errorf("%s %s has no parameter %s in the document", r.method, r.path, name)
			continue
		}
		if schema["type"] == "array" {
			schema, _ = d.resolve(schema["items"])
		}
		for _, value := range values {
			text := []byte(value)
			if schema["type"] == "string" {
				text, _ = json.Marshal(value)
			}
			if err := d.validate(schema, text); err != nil {
				d.t.Errorf("%s %s: the parameter %s=%s: %v", r.method, r.path, name, value, err)
			}
		}
	}
}

// checkExample checks the example of a route's body against the body's schema.
func (d *document) checkExample(at string, r documentedRoute) {
	d.t.Helper()
	request, _ := r.operation["requestBody"].(map[string]any)
	content, _ := request["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	example, ok := media["example"]
	if !ok {
		return
	}
	text, err := json.Marshal(example)
	if err == nil {
		err = d.validate(media["schema"], text)
	}
	if err != nil {
		d.t.Errorf("the example of %s: %v", at, err)
	}
}

// resolve follows a reference within the document.
func (d *document) resolve(v any) (map[string]any, bool) {
	m, ok := v.(map[string]any)
	ref, isRef := m["$ref"].(string)
	if !ok || !isRef {
		return m, ok
	}
	var at any = d.raw
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		next, _ := at.(map[string]any)
		at = next[part]
	}
	return d.resolve(at)
}

// validate checks JSON against a schema of the document.
func (d *document) validate(schema any, text []byte) error {
	compiled, err := d.compiled(schema)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(v)
}

// compiled is a schema of the document in the form that the validator needs.
func (d *document) compiled(schema any) (*jsonschema.Schema, error) {
	b, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.schemas[string(b)]; known != nil {
		return known, nil
	}
	name := fmt.Sprintf("http://belay.test/%d.json", len(d.schemas))
	whole := bytes.ReplaceAll(b, []byte(`"#/`), []byte(`"http://belay.test/openapi.json#/`))
	resource, err := jsonschema.UnmarshalJSON(bytes.NewReader(whole))
	if err != nil {
		return nil, err
	}
	if err := d.compiler.AddResource(name, resource); err != nil {
		return nil, err
	}
	compiled, err := d.compiler.Compile(name)
	d.schemas[string(b)] = compiled
	return compiled, err
}
