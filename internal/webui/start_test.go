package webui

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// submitter has the calls of the form that starts executions.
type submitter struct {
	submitted []belay.Submission
	answer    belay.Submitted
	schema    *Input
}

func (s *submitter) Submit(_ context.Context, list ...belay.Submission) ([]belay.Submitted, error) {
	s.submitted = append(s.submitted, list...)
	a := s.answer
	if a.ID = id(42); a.Err != nil {
		a.ID = belay.ExecutionID{}
	}
	return []belay.Submitted{a}, nil
}

func (s *submitter) inputOf(string) (*Input, error) {
	if s.schema == nil {
		return nil, &belay.Error{Code: belay.CodeInvalid, Message: "the document is wrong"}
	}
	return s.schema, nil
}

// schemaOf makes the description of an input from the JSON of a list of properties: name, required, schema.
func schemaOf(t *testing.T, text string) *Input {
	t.Helper()
	var list []struct {
		Name     string
		Required bool
		Schema   any
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	in := &Input{Document: "x", About: "Builds it"}
	for _, p := range list {
		in.Properties = append(in.Properties, Property(p))
	}
	return in
}

const everyKind = `[
	{"name": "text", "schema": {"type": "string", "title": "A text", "description": "Any text."}},
	{"name": "long", "schema": {"type": "string", "maxLength": 5000}},
	{"name": "must", "required": true, "schema": {"type": "string"}},
	{"name": "named", "schema": {"type": "string", "default": "x"}},
	{"name": "day", "schema": {"type": "string", "format": "date"}},
	{"name": "at", "schema": {"type": "string", "format": "date-time"}},
	{"name": "count", "schema": {"type": "integer", "minimum": 1, "maximum": 10}},
	{"name": "ratio", "schema": {"type": ["number", "null"]}},
	{"name": "flag", "schema": {"type": "boolean"}},
	{"name": "on", "schema": {"type": "boolean", "default": true}},
	{"name": "size", "schema": {"enum": ["small", "large", 3, null, {"a": [1, "<b>"]}]}},
	{"name": "list", "schema": {"type": "array", "items": {"type": "string"}}},
	{"name": "numbers", "schema": {"type": "array", "items": {"type": "integer"}}},
	{"name": "some", "schema": {"type": "array", "items": {"enum": ["a", "b", "c"]}}},
	{"name": "tree", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
	{"name": "any", "schema": true},
	{"name": "either", "schema": {"type": ["string", "integer"]}}
]`

// An input that a form shows in fields, and that is sent back unchanged, keeps its value, whatever it is.
func TestAnInputSurvivesItsForm(t *testing.T) {
	in := schemaOf(t, everyKind)
	fields := inputFields(in)
	inputs := []string{
		`{"must": "x"}`,
		`{"text": "a\nb", "long": "\n begins with a line break", "must": "", "named": "", "day": "2026-11-20",
			"at": "2026-11-20T12:00:00Z", "count": 12345678901234567890, "ratio": null, "flag": false, "on": false,
			"size": {"a": [1, "<b>"]}, "list": ["a", "b c"], "numbers": [1, -2.50, 3e9], "some": ["c", "a"],
			"tree": {"a": {"b": []}}, "any": null, "either": 7}`,
		`{"must": 1, "text": {"a": 1}, "day": "tomorrow", "at": "2026-11-20T12:00:00.5+02:00", "count": "7",
			"ratio": 1.0, "flag": "yes", "on": null, "size": "other", "list": ["a\nb", ""], "numbers": ["1"],
			"some": ["a", "a", "z"], "list": [], "either": "x", "unknown": {"more": true}, "f0": 1, "": ""}`,
		`{"must": "x", "size": null, "list": [null], "numbers": [], "some": [], "at": "2026-11-20T12:00:00+00:00"}`,
		`{"must": "x", "size": 3, "list": ["  spaces  "], "numbers": {}, "some": "a", "flag": 0}`,
	}
	for _, s := range hostile {
		text := string(compact(s))
		inputs = append(inputs, `{"must": `+text+`, "text": `+text+`, "list": [`+text+`], "size": `+text+`, `+text+`: `+
			text+`}`)
	}
	for _, input := range inputs {
		list, ok := fieldsFor(fields, json.RawMessage(input))
		if !ok {
			t.Errorf("%.60s has no fields", input)
			continue
		}
		form := url.Values{}
		for i := range list {
			form[list[i].Name] = list[i].sent()
		}
		got, problems := readFields(fields, form)
		var want map[string]any
		if err := json.Unmarshal([]byte(input), &want); err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]any{"named": "x", "on": true} { // the defaults
			if _, set := want[name]; !set {
				want[name] = value
			}
		}
		if len(problems) == 1 && strings.HasPrefix(input, `{"must": "",`) && problems["f2"] == needed {
			continue // a text that is required cannot be empty in a field
		}
		if len(problems) > 0 || !same(got, compact(want)) {
			t.Errorf("%.300s became %.600s, %v", compact(want), got, problems)
		}
	}
	for _, input := range []string{`[]`, `"x"`, `7`, `null`} {
		if _, ok := fieldsFor(fields, json.RawMessage(input)); ok {
			t.Errorf("%s has fields", input)
		}
	}
}

// startPage returns a Backend with a document whose input has every kind of field.
func startPage(t *testing.T, schema string) *fake {
	f := poisonedFleet("x")
	f.documents[0].Deprecated = nil
	f.schema = schemaOf(t, schema)
	return f
}

// fieldsOnPage returns the values that a browser sends for the form on a page.
func fieldsOnPage(a *answer) url.Values {
	form := url.Values{}
	if len(a.root.class("act")) == 0 {
		return form
	}
	act := a.root.class("act")[0]
	for _, x := range act.all("input") {
		if x.attr["type"] != "checkbox" || x.attr["checked"] != "" {
			form.Add(x.attr["name"], x.attr["value"])
		}
	}
	for _, x := range act.all("textarea") {
		text := ""
		for _, k := range x.kids {
			text += k.text
		}
		form.Add(x.attr["name"], text)
	}
	for _, x := range act.all("select") {
		value := x.all("option")[0].attr["value"]
		for _, o := range x.all("option") {
			if o.attr["selected"] != "" {
				value = o.attr["value"]
			}
		}
		form.Add(x.attr["name"], value)
	}
	return form
}

// The form of a document starts one execution of the version on the page, with the values of its fields.
func TestADocumentIsStartedFromItsPage(t *testing.T) {
	f := startPage(t, everyKind)
	link := send(t, f, by("/workflows/x", nil, belay.ScopeSubmit)).root.class("acts")[0].all("a")[0]
	if link.words() != "Run" || link.attr["href"] != "/start?document=x%401" {
		t.Fatalf("the page of the document offers %v", link.attr)
	}
	if a := send(t, f, by("/workflows/x", nil, belay.ScopeOperate)); len(a.root.class("acts")) != 0 {
		t.Error("a visitor without the scope submit is offered to run a document")
	}
	page := send(t, f, by(link.attr["href"], nil, belay.ScopeSubmit))
	page.says("Run x", "A new execution of x@1 begins.", "Builds it", "A text. Any text.", "At least 1. At most 10.",
		"Each line is an entry.", "The time is in UTC.")
	form := fieldsOnPage(page)
	for name, value := range map[string]string{
		"f2": "needed", "f4": "2026-11-20", "f5": "2026-11-20T12:30", "f6": " 7 ", "f8": "no", "f10": "4",
		"f11": "a\r\n\r\nb", "f12": "1\n2", "f13": "1", "j14": `{"a": "b"}`, "queue": "fast", "priority": "-3",
		"labels": "team=blue\r\n\r\nsize=a=b", "due": "2026-11-21T08:00",
	} {
		form.Set(name, value)
	}
	got := send(t, f, by(startPath, form, belay.ScopeSubmit))
	if got.status != http.StatusSeeOther || got.header.Get("Location") != here+id(42).String()+"?done=start" {
		t.Fatalf("%d to %s\n%s", got.status, got.header.Get("Location"), got.body)
	}
	x := f.submitted[0]
	const input = `{"must": "needed", "named": "x", "day": "2026-11-20", "at": "2026-11-20T12:30:00Z", "count": 7,
		"flag": false, "on": true, "size": {"a": [1, "<b>"]}, "list": ["a", "b"], "numbers": [1, 2], "some": ["b"],
		"tree": {"a": "b"}}`
	if !same(x.Input, json.RawMessage(input)) {
		t.Errorf("the input is %s", x.Input)
	}
	if x.Document != "x@1" || x.Workflow != "" || x.Queue != "fast" || x.Priority != -3 || x.Actor != "anna" ||
		x.Labels["team"] != "blue" || x.Labels["size"] != "a=b" || x.DueAt.Format("02 15:04") != "21 08:00" {
		t.Errorf("submitted %+v", x)
	}
	send(t, f, by(startPath, form, belay.ScopeSubmit))
	if y := f.submitted[1]; x.IdempotencyKey == "" || x.IdempotencyKey != y.IdempotencyKey {
		t.Errorf("sent twice: the keys are %q and %q", x.IdempotencyKey, y.IdempotencyKey)
	}
	again := fieldsOnPage(send(t, f, by(link.attr["href"], nil, belay.ScopeSubmit)))
	if again.Get("op") == form.Get("op") {
		t.Error("two forms have the same key")
	}
	form.Set("key", " mine ")
	f.answer.Replayed = true
	got = send(t, f, by(startPath, form, belay.ScopeSubmit))
	k := f.submitted[2].IdempotencyKey
	if k != "mine" || !strings.HasSuffix(got.header.Get("Location"), "?done=started") {
		t.Errorf("with the key %q to %s", k, got.header.Get("Location"))
	}
}

// A form that is refused says beside each field what is wrong, and keeps everything that was written; so does a change
// between fields and JSON.
func TestARefusedStartLosesNothing(t *testing.T) {
	f := startPage(t, everyKind)
	const at = startPath + "?document=x@1"
	form := fieldsOnPage(send(t, f, by(at, nil, belay.ScopeSubmit)))
	form.Set("f6", "seven")
	form.Set("f11", "one\ntwo")
	form.Set("f12", "1\nx")
	form.Set("f10", "99")
	form.Set("j14", "{")
	form.Set("queue", "fast")
	a := send(t, f, by(startPath, form, belay.ScopeSubmit))
	if a.status != http.StatusUnprocessableEntity || len(f.submitted) != 0 {
		t.Fatalf("%d, submitted %v", a.status, f.submitted)
	}
	for name, want := range map[string]string{
		"f2": needed, "f6": "Write a number", "f12": "Write one number in each line.", "f10": "Choose one",
		"j14": "The text is no JSON",
	} {
		beside := slices.DeleteFunc(a.root.all("p"), func(n *node) bool { return n.attr["id"] != name+"-wrong" })
		if len(beside) != 1 || !strings.Contains(beside[0].words(), want) {
			t.Errorf("%s: the form says %v, want %q\n%s", name, beside, want, a.body)
		}
	}
	back := fieldsOnPage(a)
	for _, name := range []string{"f6", "f11", "f12", "j14", "queue"} {
		if back.Get(name) != form.Get(name) {
			t.Errorf("%s became %q", name, back.Get(name))
		}
	}
	for name, value := range map[string]string{"f2": "x", "f6": "7", "f10": "1", "f12": "1", "j14": `{"a": "b"}`} {
		form.Set(name, value)
	}
	f.answer.Err = &belay.Error{Code: belay.CodeInvalid, Message: "input.count: too large"}
	f.schema.Check = func(json.RawMessage) []Mismatch {
		return []Mismatch{{[]string{"count"}, "too large"}, {[]string{"tree", "a"}, "too deep"}, {nil, "too long"}}
	}
	a = send(t, f, by(startPath, form, belay.ScopeSubmit))
	a.says("Some fields need another value.", "Too large.", "A: too deep.")
	if a.status != http.StatusUnprocessableEntity || fieldsOnPage(a).Get("f11") != "one\ntwo" {
		t.Errorf("%d\n%s", a.status, a.body)
	}
	sent := len(f.submitted)
	form.Set("show", "json")
	a = send(t, f, by(startPath, form, belay.ScopeSubmit))
	asJSON := fieldsOnPage(a)
	if a.status != http.StatusOK || !strings.Contains(asJSON.Get("input"), `"list": [`) || asJSON.Get("queue") != "fast" {
		t.Errorf("as JSON: %d\n%s", a.status, a.body)
	}
	asJSON.Set("show", "fields")
	a = send(t, f, by(startPath, asJSON, belay.ScopeSubmit))
	if got := fieldsOnPage(a); got.Get("f11") != "one\ntwo" || got.Get("f10") != "1" || got.Get("queue") != "fast" {
		t.Errorf("in fields again: %v", got)
	}
	asJSON.Set("input", `{"a": `)
	a = send(t, f, by(startPath, asJSON, belay.ScopeSubmit))
	if a.status != http.StatusUnprocessableEntity || fieldsOnPage(a).Get("input") != `{"a": ` || len(f.submitted) != sent {
		t.Errorf("broken JSON: %d, submitted %d", a.status, len(f.submitted)-sent)
	}
	for _, bad := range []url.Values{
		{"priority": {"high"}}, {"labels": {"novalue"}}, {"labels": {"a=1\na=2"}}, {"labels": {"=x"}},
		{"due": {"soon"}},
	} {
		form.Del("show")
		broken := url.Values{}
		for name, values := range form {
			broken[name] = values
		}
		for name, values := range bad {
			broken[name] = values
		}
		a = send(t, f, by(startPath, broken, belay.ScopeSubmit))
		for name := range bad {
			if got := fieldsOnPage(a).Get(name); a.status != http.StatusUnprocessableEntity || got != bad.Get(name) {
				t.Errorf("%v: %d, %q", bad, a.status, got)
			}
		}
	}
	if len(f.submitted) != sent {
		t.Errorf("a form that is wrong was submitted %d times", len(f.submitted)-sent)
	}
}

// The page of an execution offers to start it again, with its input, which the person can change.
func TestAnExecutionIsStartedAgain(t *testing.T) {
	f := running()
	f.one.Queue, f.one.Priority, f.one.Policy = "fast", 5, &belay.Policy{MaxAttempts: 7}
	f.one.Labels = map[string]string{"team": "blue", belay.LabelSchedule: "nightly"}
	at := startPath + "?again=" + id(1).String()
	if a := send(t, f, by(here+id(1).String(), nil, belay.ScopeSubmit)); !strings.Contains(a.body, `href="`+at+`"`) {
		t.Errorf("the page does not offer it\n%s", a.body)
	}
	form := fieldsOnPage(send(t, f, by(at, nil, belay.ScopeSubmit)))
	form.Set("input", `{"change": 18}`)
	send(t, f, by(startPath, form, belay.ScopeSubmit))
	x := f.submitted[0]
	if x.Workflow != "review" || x.Queue != "fast" || x.Priority != 5 || x.Policy.MaxAttempts != 7 ||
		len(x.Labels) != 1 || x.Labels["team"] != "blue" || !same(x.Input, []byte(`{"change": 18}`)) {
		t.Errorf("submitted %+v", x)
	}
	// An execution of a document whose version is stored, of another version, and of a file.
	f = startPage(t, `[{"name": "n", "schema": {"type": "integer"}}]`)
	for version, want := range map[string]string{"1": "x@1", "2": "", "": ""} {
		f.one = running().one
		f.one.Workflow, f.one.Labels = "document", map[string]string{
			belay.LabelDocument: "x", belay.LabelDocumentVersion: version, "a": "b"}
		f.one.Input = json.RawMessage(`{"document": "x", "hash": "", "file": "x.yaml", "input": {"n": 3}, "repair": [1]}`)
		form := fieldsOnPage(send(t, f, by(at, nil, belay.ScopeSubmit)))
		if form.Get("f0") != "3" {
			t.Fatalf("version %q: the form is %v", version, form)
		}
		form.Set("f0", "4")
		send(t, f, by(startPath, form, belay.ScopeSubmit))
		x := f.submitted[len(f.submitted)-1]
		input := `{"n": 4}`
		if want == "" {
			input = `{"document": "x", "file": "x.yaml", "input": {"n": 4}}`
		}
		if x.Document != want || !same(x.Input, []byte(input)) || x.Labels["a"] != "b" {
			t.Errorf("version %q: submitted %+v with %s", version, x, x.Input)
		}
	}
	for _, e := range []belay.Execution{
		{ID: id(1), Workflow: belay.BulkWorkflow}, {ID: id(1), Workflow: "command", Queue: "run:x"},
	} {
		f.one = &e
		if a := send(t, f, by(at, nil, belay.ScopeSubmit)); a.status != http.StatusConflict {
			t.Errorf("%s of %s: %d", e.Workflow, e.Queue, a.status)
		}
	}
}

// Requests that no page of this server makes start nothing, and get a page or a refusal.
func TestAttacksOnTheFormThatStarts(t *testing.T) {
	f := startPage(t, everyKind)
	good := fieldsOnPage(send(t, f, by(startPath+"?document=x@1", nil, belay.ScopeSubmit)))
	good.Set("f2", "x")
	body := func(kind, text string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, startPath, strings.NewReader(text))
		r.Header.Set("Content-Type", kind)
		return WithVisitor(r, Visitor{"anna", func(belay.Scope) bool { return true }})
	}
	large := url.Values{"op": good["op"], "input": {strings.Repeat("x", maxForm)}}
	for name, c := range map[string]struct {
		r      *http.Request
		status int
	}{
		"a GET with a whole form": {by(startPath+"?"+good.Encode(), nil, belay.ScopeSubmit), 200},
		"JSON":                    {body("application/json", `{"op": "x", "workflow": "w"}`), 400},
		"multipart": {body("multipart/form-data; boundary=b",
			"--b\r\nContent-Disposition: form-data; name=\"op\"\r\n\r\nx\r\n--b--\r\n"), 400},
		"a text":            {body("text/plain", good.Encode()), 400},
		"no form":           {body("application/x-www-form-urlencoded", ""), 400},
		"a form cut off":    {body("application/x-www-form-urlencoded", "op=%"), 400},
		"a large form":      {by(startPath, large, belay.ScopeSubmit), 400},
		"no key":            {by(startPath, url.Values{"op": {""}, "workflow": {"w"}}, belay.ScopeSubmit), 400},
		"a scope too small": {by(startPath, good, belay.ScopeRead, belay.ScopeOperate, belay.ScopeWorker), 403},
		"a form to look at": {by(startPath+"?workflow=w", nil, belay.ScopeOperate), 403},
		"nobody":            {httptest.NewRequest(http.MethodPost, startPath, strings.NewReader(good.Encode())), 400},
		"an unknown id":     {by(startPath+"?again="+id(9).String(), nil, belay.ScopeSubmit), 404},
		"a broken id":       {by(startPath+"?again=x", nil, belay.ScopeSubmit), 404},
		"an odd document":   {by(startPath+"?document=%2e%2e%2fx", nil, belay.ScopeSubmit), 404},
		"a missing version": {by(startPath+"?document=x@7", nil, belay.ScopeSubmit), 404},
		"no workflow":       {by(startPath, url.Values{"op": good["op"]}, belay.ScopeSubmit), 422},
	} {
		if a := send(t, f, c.r); a.status != c.status || len(f.submitted) != 0 {
			t.Errorf("%s: %d, want %d; submitted %d\n%.300s", name, a.status, c.status, len(f.submitted), a.body)
		}
		f.submitted = nil
	}
	// Values that are sent twice, and values for both kinds of a field, make no other document than one of the schema.
	good["f6"], good["f0"], good["j6"] = []string{"1", "2"}, []string{"a", "b"}, []string{"3"}
	if a := send(t, f, by(startPath, good, belay.ScopeSubmit)); a.status != 303 ||
		!strings.Contains(string(f.submitted[0].Input), `"count":3`) {
		t.Errorf("%d: %v", a.status, f.submitted)
	}
}

// Schemas that attack a form get JSON instead of fields, or fields with inert texts.
func TestHostileSchemas(t *testing.T) {
	deep := strings.Repeat(`{"type": "array", "items": `, 500) + `true` + strings.Repeat(`}`, 500)
	many := `[{"name": "a", "schema": true}` + strings.Repeat(`,{"name": "a", "schema": true}`, 200) + `]`
	for name, schema := range map[string]string{
		"deep":     `[{"name": "a", "schema": ` + deep + `}]`,
		"many":     many,
		"odd":      `[{"name": "a", "schema": {"type": 7, "enum": "x", "default": {}, "items": [], "format": []}}]`,
		"enum":     `[{"name": "a", "schema": {"enum": [` + strings.Repeat(`"x",`, 300) + `1]}}]`,
		"loop":     `[{"name": "a", "schema": {"$ref": "#"}}, {"name": "b", "schema": {"$ref": "http://127.0.0.1:1/x"}}]`,
		"patterns": `[{"name": "a", "schema": {"type": "string", "pattern": "(a+)+$(((((((((("}}]`,
		"bounds":   `[{"name": "a", "schema": {"type": "string", "maxLength": -1e300, "minimum": {"a": []}}}]`,
	} {
		f := startPage(t, schema)
		a := send(t, f, by(startPath+"?document=x@1", nil, belay.ScopeSubmit))
		if checkTame(t, a); a.status != 200 || len(a.body) > 256<<10 {
			t.Errorf("%s: %d with %d bytes", name, a.status, len(a.body))
		}
		form := fieldsOnPage(a)
		form.Set("j0", strings.Repeat("[", 200_000))
		if a := send(t, f, by(startPath, form, belay.ScopeSubmit)); a.status >= 500 {
			t.Errorf("%s: a deep value: %d", name, a.status)
		}
	}
	for _, s := range hostile {
		text := string(compact(s))
		f := startPage(t, `[{"name": `+text+`, "required": true, "schema": {"type": "string", "title": `+text+`,
			"description": `+text+`, "pattern": `+text+`, "default": `+text+`}},
			{"name": "b", "schema": {"enum": [`+text+`, {`+text+`: 1}]}},
			{"name": "c", "schema": {"type": "array", "items": {"enum": [`+text+`]}, "default": [`+text+`]}}]`)
		f.schema.About = s
		a := send(t, f, by(startPath+"?document=x@1", nil, belay.ScopeSubmit))
		checkTame(t, a)
		form := fieldsOnPage(a)
		f.answer.Err = &belay.Error{Code: belay.CodeInvalid, Message: s}
		f.schema.Check = func(json.RawMessage) []Mismatch { return []Mismatch{{[]string{s, s}, s}, {nil, s}} }
		checkTame(t, send(t, f, by(startPath, form, belay.ScopeSubmit)))
		for name := range form {
			if name != "op" && name != "mode" && name != "document" {
				form.Set(name, s)
			}
		}
		checkTame(t, send(t, f, by(startPath, form, belay.ScopeSubmit)))
		checkTame(t, send(t, f, by(startPath+"?workflow="+percent(s), nil, belay.ScopeSubmit)))
	}
}
