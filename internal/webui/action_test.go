package webui

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// by returns a request of a visitor with some scopes. form is nil for a GET.
func by(address string, form url.Values, scopes ...belay.Scope) *http.Request {
	r := httptest.NewRequest(http.MethodGet, address, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return WithVisitor(r, Visitor{"anna", func(s belay.Scope) bool { return slices.Contains(scopes, s) }})
}

// offered returns the names of the actions that the page of the execution offers.
func offered(t *testing.T, f *fake, scopes ...belay.Scope) (names []string) {
	t.Helper()
	at := here + id(1).String()
	for _, a := range send(t, f, by(at, nil, scopes...)).root.all("a") {
		name, ok := strings.CutPrefix(a.attr["href"], at+"/")
		if ok && name != "checkpoints" && name != "job" {
			names = append(names, name)
		}
	}
	return names
}

// The page of an execution offers the actions that are legal in its state and that the visitor's scopes allow.
func TestActionsThatAPageOffers(t *testing.T) {
	both := []belay.Scope{belay.ScopeSubmit, belay.ScopeOperate}
	for _, c := range []struct {
		state  belay.State
		scopes []belay.Scope
		want   string
	}{
		{belay.Running, nil, ""},
		{belay.Running, both[:1], "signal"},
		{belay.Running, both[1:], "pause fork preempt steal cancel quarantine"},
		{belay.Running, both, "signal pause fork preempt steal cancel quarantine"},
		{belay.Pending, both, "signal pause fork cancel quarantine"},
		{belay.Paused, both, "signal resume fork cancel quarantine"},
		{belay.Failed, both, "retry requeue fork delete"},
		{belay.Cancelled, both, "retry requeue fork delete"},
		{belay.Succeeded, both, "fork delete"},
	} {
		f := running()
		f.one.State = c.state
		if got := strings.Join(offered(t, f, c.scopes...), " "); got != c.want {
			t.Errorf("%s with %v: %q, want %q", c.state, c.scopes, got, c.want)
		}
	}
	if got := get(t, running(), here+id(1).String()); len(got.root.class("acts")) != 0 {
		t.Error("a request without a visitor is offered actions")
	}
}

// formOf returns the values with which the form of an action is sent if the visitor changes nothing.
func formOf(t *testing.T, f *fake, name string, scopes ...belay.Scope) url.Values {
	t.Helper()
	a := send(t, f, by(here+id(1).String()+"/"+name, nil, scopes...))
	if a.status != http.StatusOK || len(a.root.class("act")) != 1 {
		t.Fatalf("%s: %d\n%s", name, a.status, a.body)
	}
	form := make(url.Values)
	for _, x := range a.root.class("act")[0].all("input") {
		if x.attr["type"] != "checkbox" {
			form.Set(x.attr["name"], x.attr["value"])
		}
	}
	for _, x := range a.root.class("act")[0].all("textarea") {
		text := ""
		for _, k := range x.kids {
			text += k.text
		}
		form.Set(x.attr["name"], text)
	}
	return form
}

// An action that is sent from its form reaches the Backend with the name of the visitor, and the browser goes to the
// page of the execution, which says what happened.
func TestActionsReachTheBackend(t *testing.T) {
	at := here + id(1).String()
	for _, a := range actions {
		if a.name == replying { // TestRepliesToAnAgent sends replies
			continue
		}
		f := running()
		if a.name == "retry" || a.name == "requeue" || a.name == "delete" {
			f.one.State = belay.Failed
		}
		form := formOf(t, f, a.name, a.scope)
		form.Set("reason", " because ")
		if form.Has("cost") {
			form.Set("cost", "12.5")
		}
		for name, value := range map[string]string{
			"signal": "approve", "payload": `{"ok": true}`, "from": "test", "at": "test",
		} {
			if form.Has(name) {
				form.Set(name, value)
			}
		}
		got := send(t, f, by(at+"/"+a.name, form, a.scope))
		if a.name == "requeue" { // after the review
			got = send(t, f, by(at+"/"+a.name, fieldsOnPage(got), a.scope))
		}
		to := at + "?done=" + a.name
		switch a.name {
		case "fork":
			to = here + id(99).String() + "?done=fork"
		case "delete":
			to = "/executions"
		}
		if got.status != http.StatusSeeOther || got.header.Get("Location") != to {
			t.Errorf("%s: %d to %q, want %q\n%s", a.name, got.status, got.header.Get("Location"), to, got.body)
			continue
		}
		if a.name == "signal" {
			s := f.signals[0]
			if s.Name != "approve" || string(s.Payload) != `{"ok": true}` || s.Op.IsZero() || s.Execution != id(1) ||
				s.Actor != "anna" {
				t.Errorf("the signal is %+v", s)
			}
			continue
		}
		c := f.controls[0]
		if c.Action != belay.Action(a.name) || c.Actor != "anna" || c.Reason != "because" || c.Op.IsZero() ||
			c.Execution != id(1) {
			t.Errorf("the action is %+v", c)
		}
		if a.name == "requeue" && (c.Generation != 1 || !same(c.Input, f.one.Input)) ||
			a.name == "budget" && c.Budget.Cost.String() != "12.5" ||
			a.name == "retry" && c.From != "test" || a.name == "fork" && c.At != "test" {
			t.Errorf("the action is %+v", c)
		}
		if a.done != "" {
			page := send(t, f, by(at+"?done="+a.name, nil))
			page.says(a.done)
			if f.one.State == belay.Running && !strings.Contains(page.body, `content="3; url=`+at+`"`) {
				t.Errorf("%s: the note stays when the page reloads itself", a.name)
			}
		}
	}
	get(t, running(), at+"?done=%3Cb%3E").saysNot("<b>")
}

func same(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && jsonText(x) == jsonText(y)
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// An action that is refused shows the form again, with the reason and with everything that the visitor has written.
func TestRefusedActionsLoseNothing(t *testing.T) {
	at := here + id(1).String()
	f := running()
	f.one.State = belay.Failed
	form := formOf(t, f, "requeue", belay.ScopeOperate)
	form.Set("input", `{"change": 18,}`)
	form.Set("reason", "a better change")
	a := send(t, f, by(at+"/requeue", form, belay.ScopeOperate))
	if a.status != http.StatusUnprocessableEntity || len(f.controls) != 0 {
		t.Errorf("%d, %v", a.status, f.controls)
	}
	a.says("The text is no JSON near the character 15", `{"change": 18,}`)
	if !strings.Contains(a.body, `value="a better change"`) {
		t.Errorf("the reason is lost\n%s", a.body)
	}
	form.Set("input", `{"change": 18}`)
	f.refusal = &belay.Error{Code: belay.CodeConflict, Message: "it was reopened by bob"}
	form.Set("step", "start")
	a = send(t, f, by(at+"/requeue", form, belay.ScopeOperate))
	if a.status != http.StatusConflict {
		t.Errorf("%d", a.status)
	}
	a.says("It was reopened by bob.", `{"change": 18}`)
	for _, broken := range []url.Values{{}, {"op": {"x"}}, {"op": form["op"], "generation": {"-1"}, "input": {"1"}}} {
		if a := send(t, f, by(at+"/requeue", broken, belay.ScopeOperate)); a.status != http.StatusBadRequest {
			t.Errorf("%v: %d", broken, a.status)
		}
	}
	large := url.Values{"op": form["op"], "input": {strings.Repeat("x", maxForm)}}
	if a := send(t, f, by(at+"/requeue", large, belay.ScopeOperate)); a.status != http.StatusBadRequest {
		t.Errorf("a large form: %d", a.status)
	}
	for _, path := range []string{at + "/nothing", here + "x/cancel", here + id(2).String() + "/cancel"} {
		if a := send(t, f, by(path, nil, belay.ScopeOperate)); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for _, r := range []*http.Request{
		by(at+"/cancel", url.Values{}, belay.ScopeSubmit), by(at+"/cancel", nil),
		by(at+"/signal", url.Values{}, belay.ScopeRead),
		httptest.NewRequest(http.MethodPost, at+"/cancel", nil),
	} {
		if a := send(t, f, r); a.status != http.StatusForbidden || len(f.controls) != 1 {
			t.Errorf("%s %s: %d", r.Method, r.URL, a.status)
		}
	}
}

// Any text in an execution, in a form that is refused and in the name of the visitor is inert, and an input that is
// sent back unchanged keeps its value.
func TestHostileTextInForms(t *testing.T) {
	at := here + id(1).String()
	for _, s := range hostile {
		f := poisoned(s)
		f.one.State, f.one.Parent = belay.Failed, belay.ExecutionID{}
		f.refusal = &belay.Error{Code: belay.CodeConflict, Message: s}
		for _, name := range []string{"requeue", "retry"} {
			checkTame(t, send(t, f, by(at+"/"+name, nil, belay.ScopeOperate)))
			form := formOf(t, f, name, belay.ScopeOperate)
			if json.Valid(f.one.Input) && form.Has("input") && !same([]byte(form.Get("input")), f.one.Input) {
				t.Errorf("%.30q: the input %.80q became %.80q", s, f.one.Input, form.Get("input"))
			}
			form.Set("reason", s)
			checkTame(t, send(t, f, by(at+"/"+name, form, belay.ScopeOperate)))
			form.Set("step", "start")
			checkTame(t, send(t, f, by(at+"/"+name, form, belay.ScopeOperate)))
		}
		r := by(at, nil)
		checkTame(t, send(t, f, WithVisitor(r, Visitor{Name: s, Allows: func(belay.Scope) bool { return true }})))
		checkTame(t, get(t, f, "/login?failed="+percent(s)+"&next="+percent(s)))
		again := get(t, f, "/login?again=yes&next="+percent(s))
		checkTame(t, again)
		for _, m := range again.root.all("meta") {
			if m.attr["http-equiv"] == "refresh" {
				t.Errorf("%.30q: the page goes to %s", s, m.attr["content"])
			}
		}
	}
	for _, next := range []string{"//evil.example", `/\evil.example`, "https://evil.example"} {
		a := get(t, running(), "/login?again=yes&next="+percent(next))
		if strings.Contains(a.body, `http-equiv="refresh"`) {
			t.Errorf("%s: %s", next, a.body)
		}
	}
	a := get(t, running(), "/login?again=yes&next=%2Fexecutions")
	if !strings.Contains(a.body, `content="0; url=/executions"`) {
		t.Error(a.body)
	}
}

// An approval that waits is answered with fields, or with JSON; the page of its execution leads to the form.
func TestApprovalsAreAnsweredWithFields(t *testing.T) {
	f := running()
	f.one.Workflow, f.one.State = "document", belay.Waiting
	f.tasks = []belay.Task{{
		ID: "ask", Uses: "approval", State: belay.TaskWaiting,
		Question: &belay.TaskQuestion{Signal: "a/b?c", Approval: true, Message: "Deploy 1.4?"},
	}}
	at := here + id(1).String()
	links := send(t, f, by(at, nil, belay.ScopeSubmit)).root.class("answer")
	if len(links) != 1 || len(send(t, f, by(at, nil, belay.ScopeOperate)).root.class("answer")) != 0 {
		t.Fatalf("%d links to a form", len(links))
	}
	f.why.Remedies = []belay.Remedy{{Do: belay.RemedySignal, Signal: "a/b?c"}}
	if got := fieldsOnPage(send(t, f, by(at+"/signal", nil, belay.ScopeSubmit))); got.Get("approval") != "yes" {
		t.Errorf("without a name the form is %v", got)
	}
	page := send(t, f, by(links[0].attr["href"], nil, belay.ScopeSubmit))
	page.says("Approve or refuse", "Deploy 1.4?")
	form := fieldsOnPage(page)
	if form.Get("signal") != "a/b?c" || form.Get("f0") != "" {
		t.Fatalf("the form is %v", form)
	}
	a := send(t, f, by(at+"/signal", form, belay.ScopeSubmit))
	if a.says(needed, "Approve or refuse", "Deploy 1.4?"); a.status != http.StatusUnprocessableEntity ||
		len(f.signals) != 0 {
		t.Errorf("without an answer: %d", a.status)
	}
	form.Set("f0", "0")
	form.Set("f1", "looks good")
	send(t, f, by(at+"/signal", form, belay.ScopeSubmit))
	form.Set("f0", "1")
	form.Del("f1")
	send(t, f, by(at+"/signal", form, belay.ScopeSubmit))
	form.Set("show", "json")
	form = fieldsOnPage(send(t, f, by(at+"/signal", form, belay.ScopeSubmit)))
	if !same([]byte(form.Get("payload")), []byte(`{"approved": false}`)) {
		t.Errorf("as JSON: %v", form)
	}
	form.Set("payload", `[1]`)
	f.refusal = &belay.Error{Code: belay.CodeConflict, Message: "it has ended"}
	a = send(t, f, by(at+"/signal", form, belay.ScopeSubmit))
	if a.says("It has ended."); fieldsOnPage(a).Get("payload") != `[1]` || a.status != http.StatusConflict {
		t.Errorf("refused: %d\n%s", a.status, a.body)
	}
	for i, want := range []string{`{"approved": true, "comment": "looks good"}`, `{"approved": false}`, `[1]`} {
		s := f.signals[i]
		if !same(s.Payload, []byte(want)) || s.Name != "a/b?c" || s.Op.IsZero() || s.Actor != "anna" {
			t.Errorf("signal %d is %s %s by %s", i, s.Name, s.Payload, s.Actor)
		}
	}
}

// The form of an approval shows the question of the task that the signal answers, or what the task is about, and no
// other question. Any question is inert, and a large one is bounded.
func TestTheQuestionOfAnApproval(t *testing.T) {
	at := here + id(1).String()
	for _, text := range append([]string{"May I?", strings.Repeat("why <", 1<<20)}, hostile...) {
		f := running()
		f.one.Workflow, f.one.State = "document", belay.Waiting
		f.tasks = []belay.Task{
			{ID: "a", Description: text, Question: &belay.TaskQuestion{Signal: "a", Approval: true}},
			{ID: "b", Question: &belay.TaskQuestion{Signal: "b", Approval: true, Message: text}},
			{ID: "c", Question: &belay.TaskQuestion{Signal: "c", Approval: true, Message: "C?"}},
			{ID: "d", Description: "about d", Question: &belay.TaskQuestion{Signal: "d", Message: "D?"}},
		}
		for _, name := range []string{"a", "b"} {
			a := send(t, f, by(at+"/signal?approval=yes&name="+name, nil, belay.ScopeSubmit))
			checkTame(t, a)
			if shown := a.root.all("pre"); len(shown) != 1 && text != "" || len(a.body) > 1<<20 {
				t.Errorf("%.20q: %d questions, %d bytes", text, len(shown), len(a.body))
			}
			if strings.Contains(a.body, "C?") {
				t.Errorf("%.20q: the form shows another question", text)
			}
		}
		if text != "May I?" {
			continue
		}
		send(t, f, by(at+"/signal?approval=yes&name=a", nil, belay.ScopeSubmit)).says("Approve or refuse", "May I?")
		for _, name := range []string{"d", "e", "", percent("a\x00")} {
			a := send(t, f, by(at+"/signal?approval=yes&name="+name, nil, belay.ScopeSubmit))
			if len(a.root.all("pre")) != 0 {
				t.Errorf("the signal %q has a question\n%s", name, a.body)
			}
		}
		f.one.Workflow = "another"
		if a := send(t, f, by(at+"/signal?approval=yes&name=a", nil, belay.ScopeSubmit)); len(a.root.all("pre")) != 0 {
			t.Error("an execution that runs no document has the question of a task")
		}
	}
}

// Another input for an execution is reviewed first: the page shows the difference, and its form has what the person
// wrote, for the generation that the person saw.
func TestAnotherInputIsReviewed(t *testing.T) {
	at := here + id(1).String() + "/requeue"
	f := running()
	f.one.State, f.one.Input = belay.Failed, json.RawMessage(`{"change":17,"by":"anna"}`)
	form := formOf(t, f, "requeue", belay.ScopeOperate)
	send(t, f, by(at, nil, belay.ScopeOperate)).says("Review", "Nothing happens yet")
	form.Set("input", "{\"change\": 18,\n\"by\": \"anna\\u202e\u202e\"}")
	form.Set("keep", "yes")
	form.Set("reason", "wrong change")
	f.one.Generation = 2
	a := send(t, f, by(at, form, belay.ScopeOperate))
	a.says(`- "change": 17`, `+ "change": 18`, "Finished steps keep their results", "Run with another input",
		"Change the input")
	if a.status != http.StatusOK || len(f.controls) != 0 {
		t.Fatalf("the review: %d, %v", a.status, f.controls)
	}
	confirm := fieldsOnPage(a)
	if confirm.Get("reason") != "wrong change" || confirm.Get("generation") != "1" {
		t.Errorf("the review has %v", confirm)
	}
	terms := fieldsOnPage(a)
	terms.Set("show", "terms")
	again := send(t, f, by(at, terms, belay.ScopeOperate))
	if !same([]byte(fieldsOnPage(again).Get("input")), []byte(form.Get("input"))) || len(f.controls) != 0 {
		t.Errorf("the input to change is %q", fieldsOnPage(again).Get("input"))
	}
	send(t, f, by(at, confirm, belay.ScopeOperate))
	c := f.controls[0]
	if !same(c.Input, []byte(form.Get("input"))) || !c.KeepResults || c.Generation != 1 || c.Reason != "wrong change" {
		t.Errorf("the action is %+v", c)
	}
	form.Set("input", string(f.one.Input))
	send(t, f, by(at, form, belay.ScopeOperate)).says("The input stays as it is.")
	form.Set("input", "")
	send(t, f, by(at, form, belay.ScopeOperate)).says("The input stays as it is.")
	form.Set("input", strings.Repeat("[", 9000)+strings.Repeat("]", 9000))
	send(t, f, by(at, form, belay.ScopeOperate)).says("The input is too large to compare here.")
}
