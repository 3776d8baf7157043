package webui

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// bulker has the calls of the pages of bulks.
type bulker struct {
	requested []belay.Bulk
	preview   belay.BulkPreview
	refused   error
	inputs    map[belay.ExecutionID]json.RawMessage // of dead letters

	fingerprint string // of the dead letters
	notes       []belay.DeadLetterNote
}

func (b *bulker) Bulk(_ context.Context, x belay.Bulk) (belay.BulkReply, error) {
	b.requested = append(b.requested, x)
	if x.DryRun {
		p := b.preview
		return belay.BulkReply{Preview: &p}, b.refused
	}
	return belay.BulkReply{Execution: &belay.Execution{ID: id(77)}}, b.refused
}

func (b *bulker) DeadLetter(_ context.Context, x belay.ExecutionID, n int) (belay.DeadLetterDetail, error) {
	input, ok := b.inputs[x]
	if !ok {
		return belay.DeadLetterDetail{}, missing("dead letter")
	}
	return belay.DeadLetterDetail{Input: input, DeadLetter: belay.DeadLetter{Execution: x, Generation: n,
		Fingerprint: b.fingerprint, Notes: b.notes}}, nil
}

// withLetters returns a Backend with two dead letters of one group.
func withLetters() *fake {
	f := poisonedFleet("x")
	f.letters[0].Resolution = ""
	f.preview = belay.BulkPreview{Count: 12, First: []belay.BulkItem{
		{Execution: id(1), Generation: 2, Workflow: "charge", Message: "no such URL", At: noon},
		{Execution: id(2), Generation: 1, Workflow: "charge", Message: "no such URL", At: noon},
	}}
	f.inputs = map[belay.ExecutionID]json.RawMessage{
		id(1): json.RawMessage(`{"url": "https://example.org/old", "n": 12345678901234567890}`),
		id(2): json.RawMessage(`{"url": "https://example.org/new"}`),
	}
	return f
}

// A group of dead letters is requeued with another input: the form, a review with a dry run and with the change of the
// input, and then the bulk, once.
func TestAGroupIsRequeuedWithACanary(t *testing.T) {
	f := withLetters()
	page := send(t, f, by("/dead?fingerprint=x", nil, belay.ScopeOperate))
	var link string
	for _, a := range page.root.class("acts")[0].all("a") {
		if a.words() == "Requeue all of these" {
			link = a.attr["href"]
		}
	}
	if a := send(t, f, by("/dead?fingerprint=x", nil, belay.ScopeSubmit)); strings.Contains(a.body, newBulkPath) {
		t.Error("a visitor without the scope operate is offered a bulk")
	}
	if page := get(t, f, "/dead?fingerprint=x&resolution=all"); strings.Contains(page.body, newBulkPath) {
		t.Error("a list with resolved dead letters offers a bulk")
	}
	page = send(t, f, by(link, nil, belay.ScopeOperate))
	page.says("Requeue dead letters", "It selects all dead letters with the fingerprint x.", "Nothing happens yet")
	form := fieldsOnPage(page)
	form.Set("edit", "patch")
	form.Set("input", `{"url": "https://example.org/new"}`)
	form.Set("canary", "2 20")
	form.Set("rate", "0.5")
	form.Set("failures", "25")
	review := send(t, f, by(newBulkPath, form, belay.ScopeOperate))
	review.says("A dry run finds 12 dead letters", "no such URL", "These are the first 2 on which it acts.",
		`- "url": "https://example.org/old"`, `+ "url": "https://example.org/new"`, `"n": 12345678901234567890`,
		"The input stays as it is.", "It begins with 2, then 20, and goes on when they have ended well",
		"at most 0.5 per second. It stops if more than 25 % have failed.", "Requeue 12 dead letters")
	if len(f.requested) != 1 || !f.requested[0].DryRun || f.requested[0].Actor != "anna" {
		t.Fatalf("before the confirmation: %+v", f.requested)
	}
	confirm := fieldsOnPage(review)
	confirm.Set("note", "the URL was wrong")
	for range 2 {
		got := send(t, f, by(newBulkPath, confirm, belay.ScopeOperate))
		if got.status != http.StatusSeeOther || got.header.Get("Location") != "/bulks/"+id(77).String() {
			t.Fatalf("%d to %s\n%s", got.status, got.header.Get("Location"), got.body)
		}
	}
	b, again := f.requested[1], f.requested[2]
	if b.DryRun || b.Action != belay.BulkRequeue || b.Filter.Fingerprint != "x" || b.Filter.Reason != "" ||
		b.Actor != "anna" ||
		b.Notes != "the URL was wrong" || b.Rate != 0.5 || len(b.Canary) != 2 || b.Canary[1] != 20 ||
		*b.MaxFailures != 0.25 || !same(b.InputPatch, []byte(`{"url": "https://example.org/new"}`)) || b.Op.IsZero() ||
		b.Op != again.Op {
		t.Errorf("started %+v, then %+v", b, again)
	}
	confirm.Set("show", "terms")
	terms := fieldsOnPage(send(t, f, by(newBulkPath, confirm, belay.ScopeOperate)))
	if terms.Get("canary") != "2 20" || terms.Get("edit") != "patch" || terms.Get("input") != form.Get("input") ||
		terms.Get("step") != "review" || len(f.requested) != 3 {
		t.Errorf("the terms again: %v", terms)
	}
}

// The patch of the inputs of documents concerns the input of the document, and not its text.
func TestABulkOfDocumentsPatchesTheirInput(t *testing.T) {
	f := withLetters()
	for i := range f.preview.First {
		f.preview.First[i].Workflow = "document"
	}
	f.inputs[id(1)] = json.RawMessage(`{"document": "name: secret-text", "input": {"n": 1}}`)
	form := fieldsOnPage(send(t, f, by(newBulkPath+"?action=requeue&fingerprint=x", nil, belay.ScopeOperate)))
	form.Set("edit", "patch")
	form.Set("input", `{"n": 2}`)
	review := send(t, f, by(newBulkPath, form, belay.ScopeOperate))
	review.says(`- "n": 1`, `+ "n": 2`)
	review.saysNot("secret-text")
	send(t, f, by(newBulkPath, fieldsOnPage(review), belay.ScopeOperate))
	if b := f.requested[1]; !same(b.InputPatch, []byte(`{"input": {"n": 2}}`)) {
		t.Errorf("the patch is %s", b.InputPatch)
	}
	form.Set("edit", "replace")
	a := send(t, f, by(newBulkPath, form, belay.ScopeOperate))
	if a.says("change their inputs with a patch"); a.status != http.StatusUnprocessableEntity {
		t.Errorf("another input for documents: %d", a.status)
	}
}

// A list of executions offers the bulks that its filter allows, and none if a bulk would act on more than the list
// shows.
func TestBulksThatListsOffer(t *testing.T) {
	for query, want := range map[string]string{
		"":                                       "",
		"state=failed&workflow=w":                "retry state=failed&workflow=w",
		"state=running":                          "cancel state=running",
		"state=active&workflow=w":                "cancel state=active&workflow=w",
		"state=succeeded&workflow=w":             "",
		"workflow=w&cursor=x":                    "retry workflow=w, cancel workflow=w",
		"queue=q":                                "retry queue=q, cancel queue=q",
		"state=failed&label=a%3Db&label=c%3D":    "retry labels=a%3Db%0Ac%3D&state=failed",
		"state=failed&error=no+space&workflow=w": "requeue text=no+space&workflow=w, discard text=no+space&workflow=w",
		"error=no+space":                         "requeue text=no+space, discard text=no+space",
		"state=running&error=x":                  "not select by the text of an error",
		"error=x&queue=q":                        "not together with a queue or a label",
		"error=x&label=a%3Db":                    "not together with a queue or a label",
		"state=failed&children=yes":              "never acts on children",
		"workflow=w&parent=" + id(3).String():    "never acts on children",
		"key=k":                                  "not select by an idempotency key",
		"label=a%3Db%0Ac%3Dd":                    "not select by a label with such spaces",
		"label=a%3D+b+":                          "not select by a label with such spaces",
		"workflow=belay.bulk":                    "",
	} {
		f := running()
		f.list = func(belay.Filter) (belay.Page, error) { return belay.Page{}, nil }
		a := send(t, f, by("/executions?"+query, nil, belay.ScopeOperate))
		var got []string
		for _, a := range a.root.all("a") {
			if u, err := url.Parse(a.attr["href"]); err == nil && u.Path == newBulkPath {
				q := u.Query()
				action := q.Get("action")
				q.Del("action")
				got = append(got, action+" "+q.Encode())
			}
		}
		if text := strings.Join(got, ", "); text != want && !(text == "" && strings.Contains(a.root.words(), want)) ||
			want == "" && strings.Contains(a.root.words(), "offers none") {
			t.Errorf("%q: %q, want %q", query, text, want)
		}
		get := send(t, f, by("/executions?"+query, nil, belay.ScopeSubmit))
		get.saysNot("ulk acts", "ulk does", "Bulks of")
	}
}

// A person who comes from a list with a filter gets back to the same list.
func TestTheFormOfABulkLeadsBackToItsList(t *testing.T) {
	for query, want := range map[string]string{
		"action=retry&state=failed&queue=q&labels=a%3Db%0Ac%3D": "/executions?label=a%3Db&label=c%3D&queue=q&state=failed",
		"action=requeue&text=no+space&workflow=w":               "/executions?error=no+space&workflow=w",
	} {
		a := send(t, withLetters(), by(newBulkPath+"?"+query, nil, belay.ScopeOperate))
		back := a.root.class("buttons")[0].all("a")[0].attr["href"]
		if back != want {
			t.Errorf("%s leads back to %s", query, back)
		}
	}
}

// A bulk that is refused, or whose terms are wrong, gives the form back with everything that was written.
func TestARefusedBulkLosesNothing(t *testing.T) {
	f := withLetters()
	form := fieldsOnPage(send(t, f, by(newBulkPath+"?action=cancel&state=running", nil, belay.ScopeOperate)))
	for name, value := range map[string]string{"canary": "1, many", "rate": "fast", "failures": "101"} {
		form.Set(name, value)
	}
	a := send(t, f, by(newBulkPath, form, belay.ScopeOperate))
	a.says("Act on all of them: the filter names nothing but a state", "Confirm that the bulk acts on all of them.",
		"Write up to 5 numbers", "Write a number from 0.001", "Write a number from 0 to 100.")
	if a.status != http.StatusUnprocessableEntity || len(f.requested) != 0 ||
		fieldsOnPage(a).Get("canary") != "1, many" {
		t.Errorf("%d: %v", a.status, f.requested)
	}
	for name, value := range map[string]string{"canary": "", "rate": "1", "failures": "0", "all": "yes"} {
		form.Set(name, value)
	}
	f.refused = &belay.Error{Code: belay.CodeInvalid, Message: "the store says no"}
	a = send(t, f, by(newBulkPath, form, belay.ScopeOperate))
	if a.says("The store says no."); a.status != http.StatusUnprocessableEntity || fieldsOnPage(a).Get("all") != "yes" {
		t.Errorf("%d\n%s", a.status, a.body)
	}
	if b := f.requested[0]; !b.All || b.Canary == nil || len(b.Canary) != 0 || b.Filter.States[0] != belay.Running {
		t.Errorf("requested %+v", b)
	}
	f.refused, f.preview = nil, belay.BulkPreview{}
	a = send(t, f, by(newBulkPath, form, belay.ScopeOperate))
	if a.says("No execution matches the filter now."); a.status != http.StatusConflict {
		t.Errorf("%d", a.status)
	}
	f.preview = belay.BulkPreview{Count: 100_000, More: true}
	send(t, f, by(newBulkPath, form, belay.ScopeOperate)).says("at least 100000 executions", "It acts on all at once")
}

// The page of a bulk shows its progress, which its state or its output has, and leads to the actions on it.
func TestThePageOfABulk(t *testing.T) {
	f := running()
	f.one.Workflow, f.one.StateSeq = belay.BulkWorkflow, 3
	f.one.Input = json.RawMessage(`{"action": "requeue", "filter": {"workflow": "charge", "class": "permanent"},
		"notes": "mended", "rate": 2, "canary": [1], "max_failures": 0.1, "input_patch": {"a": 1}}`)
	f.events[2] = belay.Event{Seq: 3, Kind: "state", Data: json.RawMessage(`{"stage": "canary", "selected": 7,
		"running": 1, "succeeded": 2, "failed": 3, "conflicts": 1,
		"failures": [{"execution": "` + id(5).String() + `", "message": "again"}]}`)}
	at := "/bulks/" + id(1).String()
	a := send(t, f, by(at, nil, belay.ScopeOperate))
	a.says("Requeue dead letters", "It acts on its canary.", "Succeeded 2", "Failed 3", "Changed by others 1",
		"Under way 1", "Reached so far 7", "again", "These are the first 1 of 3 failures.",
		"all dead letters of the workflow charge with errors of the class permanent", "Reason mended", `"a": 1`, "Cancel",
		"Pause")
	if a.saysNot("Fork", "Give up", "Send a signal"); !strings.Contains(a.body, `content="3"`) {
		t.Error("the page of a bulk under way does not reload itself")
	}
	form := formOf(t, f, "cancel", belay.ScopeOperate)
	got := send(t, f, by(here+id(1).String()+"/cancel", form, belay.ScopeOperate))
	if to := got.header.Get("Location"); to != at+"?done=cancel" {
		t.Errorf("a cancelled bulk leads to %s", to)
	}
	f.one.State, f.one.Output = belay.Failed, json.RawMessage(`{"stage": "stopped", "failed": 1, "stopped": "too many"}`)
	a = get(t, f, at)
	if a.says("It has stopped by itself.", "too many"); strings.Contains(a.body, `http-equiv="refresh"`) {
		t.Error("the page of an ended bulk reloads itself")
	}
	f.list = func(q belay.Filter) (belay.Page, error) {
		if q.Workflow != belay.BulkWorkflow {
			t.Errorf("the list asks for %+v", q)
		}
		e := *f.one
		e.Labels, e.CreatedBy = map[string]string{"action": "discard", "workflow": "charge"}, "bob"
		return belay.Page{Executions: []belay.Execution{e}, Next: "n"}, nil
	}
	get(t, f, "/bulks").says("Discard dead letters", "of the workflow charge", "bob", "failed", "Next page")
	f.one.Workflow = "review"
	for _, path := range []string{at, "/bulks/x", "/bulks/" + id(8).String()} {
		if a := get(t, f, path); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// Requests that no page of this server makes start no bulk.
func TestAttacksOnTheFormOfBulks(t *testing.T) {
	f := withLetters()
	form := fieldsOnPage(send(t, f, by(newBulkPath+"?action=discard&fingerprint=x", nil, belay.ScopeOperate)))
	form.Set("step", "start")
	raw := func(kind, text string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, newBulkPath, strings.NewReader(text))
		r.Header.Set("Content-Type", kind)
		return WithVisitor(r, Visitor{"anna", func(belay.Scope) bool { return true }})
	}
	with := func(name, value string) url.Values {
		q, _ := url.ParseQuery(form.Encode())
		q.Set(name, value)
		return q
	}
	for name, c := range map[string]struct {
		r      *http.Request
		status int
	}{
		"a GET":             {by(newBulkPath+"?"+form.Encode(), nil, belay.ScopeOperate), 200},
		"JSON":              {raw("application/json", `{"action": "discard"}`), 400},
		"multipart":         {raw("multipart/form-data; boundary=b", "--b--"), 400},
		"a scope too small": {by(newBulkPath, form, belay.ScopeRead, belay.ScopeSubmit, belay.ScopeWorker), 403},
		"a look":            {by(newBulkPath+"?action=discard", nil, belay.ScopeRead), 403},
		"an odd action":     {by(newBulkPath, with("action", "delete"), belay.ScopeOperate), 400},
		"no action":         {by(newBulkPath, nil, belay.ScopeOperate), 400},
		"an odd state":      {by(newBulkPath, with("state", "gone"), belay.ScopeOperate), 400},
		"an odd class":      {by(newBulkPath, with("class", "odd"), belay.ScopeOperate), 400},
		"an odd time":       {by(newBulkPath, with("since", "soon"), belay.ScopeOperate), 400},
		"no operation":      {by(newBulkPath, with("op", "x"), belay.ScopeOperate), 400},
		"everything":        {by(newBulkPath, with("fingerprint", ""), belay.ScopeOperate), 422},
		"a negative rate":   {by(newBulkPath, with("rate", "-1"), belay.ScopeOperate), 422},
		"no number":         {by(newBulkPath, with("rate", "NaN"), belay.ScopeOperate), 422},
	} {
		if a := send(t, f, c.r); a.status != c.status && !(name == "no operation" && a.status == 400) ||
			len(f.requested) != 0 {
			t.Errorf("%s: %d, want %d; requested %d\n%.200s", name, a.status, c.status, len(f.requested), a.body)
		}
		f.requested = nil
	}
	for _, s := range hostile {
		text := string(compact(s))
		f.preview.First[0].Workflow, f.preview.First[0].Message = s, s
		f.inputs[id(1)] = json.RawMessage(`{` + text + `: ` + text + `}`)
		f.inputs[id(2)] = json.RawMessage(strings.Repeat("[", 200_000))
		q := newBulkPath + "?action=requeue&text=" + percent(s) + "&workflow=" + percent(s) + "&labels=" +
			percent("a="+s)
		a := send(t, f, by(q, nil, belay.ScopeOperate))
		if checkTame(t, a); a.status != 200 {
			continue
		}
		form := fieldsOnPage(a)
		form.Set("edit", "patch")
		form.Set("input", `{"b": `+text+`}`)
		checkTame(t, send(t, f, by(newBulkPath, form, belay.ScopeOperate)))
		form.Set("canary", s)
		form.Set("rate", s)
		f.refused = &belay.Error{Code: belay.CodeInvalid, Message: s}
		checkTame(t, send(t, f, by(newBulkPath, form, belay.ScopeOperate)))
		f.refused = nil
		e := poisoned(s)
		e.one.Workflow = belay.BulkWorkflow
		e.one.Input = json.RawMessage(`{"action": ` + text + `, "filter": {"workflow": ` + text + `}, "notes": ` + text +
			`, "input": ` + text + `}`)
		e.one.Output = json.RawMessage(`{"stage": "done", "stopped": ` + text + `, "failures": [{"message": ` + text + `}]}`)
		checkTame(t, get(t, e, "/bulks/"+id(1).String()))
		checkTame(t, get(t, e, "/bulks"))
	}
}

// A note on a group reaches each of its open dead letters, once, however often the form is sent.
func TestANoteOnAGroup(t *testing.T) {
	f := withLetters()
	f.letters = append(f.letters, belay.DeadLetter{Execution: id(2), Generation: 1})
	form := fieldsOnPage(send(t, f, by(deedPath+"?of=group&id=x&do=note", nil, belay.ScopeOperate)))
	a := send(t, f, by(deedPath, form, belay.ScopeOperate))
	if a.says("Write the note."); a.status != http.StatusUnprocessableEntity || len(f.deeds) != 0 {
		t.Errorf("without a text: %d, %v", a.status, f.deeds)
	}
	form.Set("reason", "the provider is down")
	for range 2 {
		got := send(t, f, by(deedPath, form, belay.ScopeOperate))
		if to := got.header.Get("Location"); to != "/dead?fingerprint=x" {
			t.Errorf("%d to %s", got.status, to)
		}
	}
	if f.dead[len(f.dead)-1].Fingerprint != "x" || f.dead[len(f.dead)-1].Resolution != "" {
		t.Errorf("read %+v", f.dead)
	}
	if len(f.deeds) != 4 || f.deeds[0] != "note "+id(1).String()+".2 by anna: the provider is down false" ||
		f.noteOps[0] != f.noteOps[2] || f.noteOps[0] == f.noteOps[1] {
		t.Errorf("%v with %v", f.deeds, f.noteOps)
	}
}
