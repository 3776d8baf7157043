package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belaydev/belay"
)

// hiddenField matches the hidden fields of a form.
var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"/>`)

// sendForm opens a form, fills it in, and sends it to the same address. It does not follow the redirection of a form
// that was carried out.
func (r *running) sendForm(c *http.Client, path string, fill map[string]string) (int, string) {
	r.t.Helper()
	status, text := r.do(c, http.MethodGet, path, "")
	if status != http.StatusOK {
		r.t.Fatalf("%s: %d\n%s", path, status, text)
	}
	form := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(text, -1) {
		form.Set(m[1], m[2])
	}
	for name, value := range fill {
		form.Set(name, value)
	}
	to, _, _ := strings.Cut(path, "?")
	return r.do(c, http.MethodPost, to, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// The forms of pages pass the same checks as requests to the API: no form adds a repair to the input of a document, and
// no form gives a bulk another input.
func TestFormsPassTheChecksOfTheAPI(t *testing.T) {
	r := start(t, setup{})
	c := http1(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cancelled := func(path, body string) string {
		t.Helper()
		status, text := r.do(c, http.MethodPost, path, body)
		var x struct {
			ID        string
			Execution struct{ ID string }
		}
		if err := json.Unmarshal([]byte(text), &x); err != nil || status >= 300 {
			t.Fatalf("%s: %d\n%s", path, status, text)
		}
		id := x.ID + x.Execution.ID
		if status, text := r.do(c, http.MethodPost, "/v1/executions/"+id+"/cancel", `{"grace": "1ms"}`); status >= 300 {
			t.Fatalf("cancel: %d\n%s", status, text)
		}
		r.do(c, http.MethodGet, "/v1/executions/"+id, "", "Prefer", "wait=10")
		return id
	}
	const document = `name: one\ntasks:\n  - {id: a, uses: approval}\n`
	id := cancelled("/v1/executions", `{"workflow": "document", "input": {"document": "`+document+`"}}`)
	input := `{"document": "` + document + `", "repair": [{"generation": 1, "from": ["a"]}]}`
	status, text := r.sendForm(c, "/executions/"+id+"/requeue", map[string]string{
		"input": input, "step": "start",
	})
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, "repair") {
		t.Errorf("a form adds a repair: %d\n%s", status, text)
	}
	for range 3 {
		r.submit(c) // so that the bulk is under way when it is cancelled
	}
	id = cancelled("/v1/bulk", `{"action": "cancel", "filter": {"workflow": "w"}, "rate": 0.001}`)
	status, text = r.sendForm(c, "/executions/"+id+"/requeue", map[string]string{
		"input": `{"action": "cancel", "all": true}`, "step": "start",
	})
	if status != http.StatusForbidden || !strings.Contains(text, "bulk") {
		t.Errorf("a form gives a bulk another input: %d\n%s", status, text)
	}
}

// A document is started with fields that its schema describes, once, however often the form is sent. A value that does
// not match the schema is refused beside its field.
func TestADocumentIsStartedWithFields(t *testing.T) {
	r := start(t, setup{})
	c := http1(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	const text = "name: one\ninput:\n  type: object\n  required: [city]\n  properties:\n" +
		"    city: {type: string, pattern: '^[A-Z](a|b|[a-z])+$', description: Where}\n" +
		"    count: {type: integer, default: 2}\n" +
		"tasks:\n  - {id: a, uses: approval}\n"
	body, _ := json.Marshal(map[string]string{"text": text})
	if status, answer := r.do(c, http.MethodPut, "/v1/workflows/one", string(body)); status >= 300 {
		t.Fatalf("%d\n%s", status, answer)
	}
	const form, path = "application/x-www-form-urlencoded", "/start?document=one"
	status, page := r.do(c, http.MethodGet, path, "")
	if status != http.StatusOK || !strings.Contains(page, "Where") || !strings.Contains(page, `name="f1" value="2"`) {
		t.Fatalf("%d\n%s", status, page)
	}
	values := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
		values.Set(m[1], m[2])
	}
	for _, wrong := range []string{"berlin", "B" + strings.Repeat("a", 100_000) + "!"} {
		values.Set("f0", wrong)
		status, page = r.do(c, http.MethodPost, "/start", values.Encode(), "Content-Type", form)
		if status != http.StatusUnprocessableEntity || !strings.Contains(page, `id="f0-wrong"`) {
			t.Errorf("%.20s: %d\n%.3000s", wrong, status, page)
		}
	}
	values.Set("f0", "Berlin")
	values.Set("f1", "5")
	for range 2 {
		if status, page = r.do(c, http.MethodPost, "/start", values.Encode(), "Content-Type", form); status != 303 {
			t.Fatalf("%d\n%s", status, page)
		}
	}
	_, list := r.do(c, http.MethodGet, "/v1/executions?workflow=document", "")
	var found struct {
		Executions []struct {
			ID     string
			Labels map[string]string
		}
	}
	if err := json.Unmarshal([]byte(list), &found); err != nil || len(found.Executions) != 1 {
		t.Fatalf("%v: %s", err, list)
	}
	x := found.Executions[0]
	if x.Labels["document"] != "one" {
		t.Errorf("the labels are %v", x.Labels)
	}
	_, one := r.do(c, http.MethodGet, "/v1/executions/"+x.ID, "")
	if !strings.Contains(one, `"input":{"city":"Berlin","count":5}`) {
		t.Errorf("the execution is %s", one)
	}
	if status, page = r.do(c, http.MethodGet, "/start?again="+x.ID, ""); !strings.Contains(page, `value="Berlin"`) {
		t.Errorf("again: %d\n%s", status, page)
	}
}

// Documents that an engine without a server has stored unchecked may have schemas that refer to files, to other hosts
// or to themselves. The form shows their input as JSON, and nothing is read.
func TestUncheckedSchemasAreNotFollowed(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	r := start(t, setup{})
	c := http1(t)
	for _, schema := range []string{
		`{"$ref": "` + other.URL + `/x"}`, `{"$ref": "file:///etc/passwd"}`, `{"$ref": "#"}`,
		`{"type": "object", "properties": {"a": {"$ref": "#"}}}`, `{"$schema": "` + other.URL + `/x", "type": "object"}`,
		`{"type": "object", "properties": {"a": {"type": "string", "pattern": "((a{1,999}){1,999}){1,999}"}}}`,
		strings.Repeat(`{"not": `, 5000) + `{}` + strings.Repeat(`}`, 5000),
	} {
		_, err := r.engine.ApplyDocument(t.Context(), belay.DocumentApply{
			Name: "odd", Text: `{"name": "odd", "input": ` + schema + `, "tasks": [{"id": "a", "uses": "approval"}]}`,
		})
		if err != nil {
			t.Logf("%.60s is not stored: %v", schema, err)
			continue
		}
		status, page := r.do(c, http.MethodGet, "/start?document=odd", "")
		if status != http.StatusOK || !strings.Contains(page, `name="input"`) {
			t.Errorf("%.60s: %d\n%s", schema, status, page)
		}
	}
	if n := asked.Load(); n != 0 || strings.Contains(r.log.String(), "ERROR") {
		t.Errorf("another host was asked %d times\n%s", n, r.log)
	}
}

// A bulk is started from its review, and its page shows its end.
func TestABulkIsStartedFromItsReview(t *testing.T) {
	r := start(t, setup{})
	c := http1(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range 3 {
		r.submit(c)
	}
	const form = "application/x-www-form-urlencoded"
	hidden := func(page string, more ...string) string {
		v := url.Values{}
		for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
			v.Set(m[1], m[2])
		}
		for i := 0; i < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v.Encode()
	}
	_, page := r.do(c, http.MethodGet, "/bulks/new?action=cancel&workflow=w", "")
	status, page := r.do(c, http.MethodPost, "/bulks/new", hidden(page, "rate", "1000", "failures", "5", "canary", "1"),
		"Content-Type", form)
	if status != http.StatusOK || !strings.Contains(page, "A dry run finds 3 executions") {
		t.Fatalf("%d\n%s", status, page)
	}
	body := hidden(page, "note", "not needed")
	for range 2 {
		status, text := r.do(c, http.MethodPost, "/bulks/new", body, "Content-Type", form)
		if status != http.StatusSeeOther {
			t.Fatalf("%d\n%s", status, text)
		}
	}
	_, list := r.do(c, http.MethodGet, "/bulks", "")
	links := regexp.MustCompile(`href="(/bulks/ex_[^"]*)"`).FindAllStringSubmatch(list, -1)
	if len(links) != 1 {
		t.Fatalf("there are %d bulks\n%s", len(links), list)
	}
	id := strings.TrimPrefix(links[0][1], "/bulks/")
	if status, text := r.do(c, http.MethodGet, "/v1/executions/"+id, "", "Prefer", "wait=15"); !strings.Contains(text,
		`"state":"succeeded"`) {
		t.Fatalf("%d %s", status, text)
	}
	status, page = r.do(c, http.MethodGet, links[0][1], "")
	if status != http.StatusOK || !strings.Contains(page, "It has acted on everything") ||
		!strings.Contains(page, "not needed") || !strings.Contains(page, "<dt>Succeeded</dt><dd>3</dd>") {
		t.Errorf("%d\n%s", status, page)
	}
}
