package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document that a server emits, and what of it was seen.
type document struct {
	t        testing.TB
	raw      map[string]any
	compiler *jsonschema.Compiler
	routes   []documentedRoute
	seen     map[string]bool // "GET /path 200"
	checked  int
}

type documentedRoute struct {
	method, path string
	match        *regexp.Regexp
	operation    map[string]any
}

// noLoader refuses to fetch what a document refers to.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, fmt.Errorf("%s: nothing is loaded", url) }

func documentOf(t testing.TB, s *server) *document {
	t.Helper()
	text := s.want(http.StatusOK, nil, http.MethodGet, "/openapi.json", "").body
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{t: t, raw: raw.(map[string]any), compiler: jsonschema.NewCompiler(), seen: make(map[string]bool)}
	d.compiler.UseLoader(noLoader{})
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("http://belay.test/openapi.json", raw); err != nil {
		t.Fatal(err)
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
	slices.SortFunc(d.routes, func(a, b documentedRoute) int { // fewer parameters first: lock/steal before lock/{id}
		if n := strings.Count(a.path, "{") - strings.Count(b.path, "{"); n != 0 {
			return n
		}
		return strings.Compare(a.path+a.method, b.path+b.method)
	})
	return d
}

// route finds the operation that a request is of.
func (d *document) route(method, path string) (documentedRoute, bool) {
	path, _, _ = strings.Cut(path, "?")
	for _, r := range d.routes {
		if r.method == method && r.match.MatchString(path) {
			return r, true
		}
	}
	return documentedRoute{}, false
}

// check holds an answer against what the document says of it.
func (d *document) check(method, path string, a *answer) {
	d.t.Helper()
	r, ok := d.route(method, path)
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
	d.seen[fmt.Sprintf("%s %s %d", r.method, r.path, a.StatusCode)] = true
	headers, _ := response["headers"].(map[string]any)
	for name, h := range headers {
		if required, _ := h.(map[string]any)["required"].(bool); required && a.Header.Get(name) == "" {
			d.t.Errorf("%s %s %d lacks the header %s", r.method, r.path, a.StatusCode, name)
		}
	}
	content, _ := response["content"].(map[string]any)
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch media, ok := content[kind].(map[string]any); {
	case len(content) == 0:
		if len(a.body) > 0 {
			d.t.Errorf("%s %s %d has a body that the document does not have: %s", r.method, r.path, a.StatusCode,
				a.body)
		}
	case !ok:
		d.t.Errorf("%s %s %d is of type %q, which the document does not have", r.method, r.path, a.StatusCode, kind)
	case strings.HasSuffix(kind, "json"):
		if err := d.validate(media["schema"], a.body); err != nil {
			d.t.Errorf("%s %s %d: %v\n%s", r.method, r.path, a.StatusCode, err, a.body)
		}
	}
}

// checkBody holds a request's body against the document.
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

// checkExample holds the example of a route's body against its schema.
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

// validate holds JSON against a schema of the document.
func (d *document) validate(schema any, text []byte) error {
	d.checked++
	name := fmt.Sprintf("http://belay.test/%d.json", d.checked)
	b, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	b = bytes.ReplaceAll(b, []byte(`"#/`), []byte(`"http://belay.test/openapi.json#/`))
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	if err := d.compiler.AddResource(name, parsed); err != nil {
		return err
	}
	compiled, err := d.compiler.Compile(name)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(v)
}
