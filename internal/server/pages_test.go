package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
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
	status, text := r.sendForm(c, "/executions/"+id+"/requeue", map[string]string{"input": input})
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, "repair") {
		t.Errorf("a form adds a repair: %d\n%s", status, text)
	}
	for range 3 {
		r.submit(c) // so that the bulk is under way when it is cancelled
	}
	id = cancelled("/v1/bulk", `{"action": "cancel", "filter": {"workflow": "w"}, "rate": 0.001}`)
	status, text = r.sendForm(c, "/executions/"+id+"/requeue", map[string]string{
		"input": `{"action": "cancel", "all": true}`,
	})
	if status != http.StatusForbidden || !strings.Contains(text, "bulk") {
		t.Errorf("a form gives a bulk another input: %d\n%s", status, text)
	}
}
