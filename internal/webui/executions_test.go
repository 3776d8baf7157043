package webui

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// many makes executions in all states.
func many(n int) []belay.Execution {
	all := make([]belay.Execution, n)
	for i := range all {
		s := belay.Pending + belay.State(i%8)
		all[i] = belay.Execution{ID: id(byte(i)), Workflow: []string{"build", "review"}[i%2], State: s, Attempt: 1,
			CreatedAt: ago(time.Minute), StartedAt: ago(30 * time.Second)}
		if s.Terminal() {
			all[i].FinishedAt = ago(10 * time.Second)
		}
		if s == belay.Failed {
			all[i].Error = &belay.Failure{Class: belay.ClassPermanent, Message: "no such branch\nsecond line"}
		}
		if s == belay.Waiting {
			all[i].Reason = &belay.Reason{Code: "signal", Text: "waits for approved"}
		}
	}
	return all
}

// listed makes a fake Backend that lists executions in pages. The cursor is the id of the last
// execution on a page. The Backend appends each query to asked.
func listed(all []belay.Execution, asked *[]belay.Filter) *fake {
	return &fake{list: func(q belay.Filter) (belay.Page, error) {
		*asked = append(*asked, q)
		var fit []belay.Execution
		counts := &belay.StateCounts{States: make(map[belay.State]int)}
		for _, e := range all {
			if q.Workflow == "" || q.Workflow == e.Workflow {
				counts.States[e.State]++
			}
			if (len(q.States) == 0 || slices.Contains(q.States, e.State)) &&
				(q.Workflow == "" || q.Workflow == e.Workflow) {
				fit = append(fit, e)
			}
		}
		if q.Cursor != "" {
			i := slices.IndexFunc(fit, func(e belay.Execution) bool { return e.ID.String() == q.Cursor })
			fit = fit[i+1:]
		}
		p := belay.Page{Executions: fit, Counts: counts}
		if len(fit) > q.Limit {
			p.Executions = fit[:q.Limit]
			p.Next = p.Executions[q.Limit-1].ID.String()
		}
		return p, nil
	}}
}

// The list shows each execution with its state as a word, and counts the executions by state.
func TestExecutionsAreListed(t *testing.T) {
	var asked []belay.Filter
	for _, address := range []string{"/executions", "/executions?live=on"} {
		a := get(t, listed(many(16), &asked), address)
		rows := a.root.class("list")[0].all("tr")
		if len(rows) != 17 {
			t.Fatalf("%s: %d rows, want a head and 16", address, len(rows))
		}
		if got := rows[7].words(); got != "build "+id(6).String()+" failed no such branch … 1 1m0s ago 20s" {
			t.Errorf("a failed execution is listed as %q", got)
		}
		a.says("all 16", "pending 2", "failed 2", "signal: waits for approved", "v1.2.3")
		a.saysNot("Counted:", "Older", "Newest")
	}
}

// If the Backend's search stopped early, the page says how far back it searched, and links to the
// rest.
func TestAPartialSearchSaysHowFarBackItWent(t *testing.T) {
	a := get(t, &fake{list: func(q belay.Filter) (belay.Page, error) {
		return belay.Page{Next: id(9).String(), SearchedUntil: ago(time.Hour)}, nil
	}}, "/executions?workflow=rare")
	a.says("The search has reached executions that were submitted 1h0m ago", "Search further back")
	a.saysNot("No execution matches the filter")
}

// Filters are passed to the Backend, stay selected in the form and in every link, and can be
// cleared.
func TestExecutionsAreFiltered(t *testing.T) {
	var asked []belay.Filter
	a := get(t, listed(many(16), &asked), "/executions?state=waiting&workflow=review&queue=q&label=a%3Db%3Dc&label="+
		"&label=d%3D&error=+no+route+&parent="+id(3).String())
	if q := asked[0]; !slices.Equal(q.States, []belay.State{belay.Waiting}) || q.Workflow != "review" ||
		q.Parent != id(3) || q.Queue != "q" || !maps.Equal(q.Labels, map[string]string{"a": "b=c", "d": ""}) ||
		q.Error != "no route" || !q.Count || len(asked) != 1 {
		t.Errorf("the Backend was asked for %+v", asked)
	}
	for name, want := range map[string][]string{
		"workflow": {"review"}, "queue": {"q"}, "label": {"a=b=c", "d=", ""}, "error": {"no route"},
		"parent": {id(3).String()},
	} {
		var values []string
		for _, n := range a.root.all("input") {
			if n.attr["name"] == name {
				values = append(values, n.attr["value"])
			}
		}
		if !slices.Equal(values, want) {
			t.Errorf("the form has the values %q for %s", values, name)
		}
	}
	for _, o := range a.root.all("option") {
		if (o.attr["selected"] != "") != (o.words() == "waiting") {
			t.Errorf("option %q is selected: %q", o.words(), o.attr["selected"])
		}
	}
	current := 0
	for _, l := range a.root.class("counts")[0].all("a") {
		if l.attr["aria-current"] == "page" {
			current++
			if l.words() != "waiting 2" {
				t.Errorf("the current list is %q", l.words())
			}
		}
		if q := query(t, l); q.Get("workflow") != "review" || q.Get("parent") == "" || q.Get("queue") != "q" ||
			!slices.Equal(q["label"], []string{"a=b=c", "d="}) || q.Get("error") != "no route" {
			t.Errorf("the link %s loses the filter", l.attr["href"])
		}
	}
	if current != 1 {
		t.Errorf("%d lists are the current one", current)
	}
	a.says("Clear")
	asked = nil
	get(t, listed(many(16), &asked), "/executions?state=active")
	if !slices.Equal(asked[0].States, activeStates) {
		t.Errorf("active asks for %v", asked[0].States)
	}
}

// The list has no children unless the reader asks for them. An empty list says so, and the switch stays in every link.
func TestChildrenAreSearchedOnRequest(t *testing.T) {
	var asked []belay.Filter
	all := many(60)
	all[0].Parent = id(9)
	a := get(t, listed(nil, &asked), "/executions?state=failed&error=no+space&cursor=x")
	a.says("Children of executions were not searched.")
	var to string
	for _, l := range a.root.all("a") {
		if l.words() == "Search them, too" {
			to = l.attr["href"]
		}
	}
	if to != "/executions?children=yes&error=no+space&state=failed" || asked[0].Children {
		t.Errorf("the search for children is at %q; asked %+v", to, asked)
	}
	a = get(t, listed(all, &asked), "/executions?children=yes&label=a%3Db")
	if !asked[1].Children {
		t.Errorf("asked %+v", asked[1])
	}
	a.says("build child of " + id(9).String())
	for _, l := range append(a.root.class("counts")[0].all("a"), a.root.class("pages")[0].all("a")...) {
		if query(t, l).Get("children") != "yes" {
			t.Errorf("the link %s has no children", l.attr["href"])
		}
	}
	for _, n := range a.root.all("input") {
		if n.attr["name"] == "children" && n.attr["checked"] == "" {
			t.Error("the switch is off")
		}
	}
	get(t, listed(nil, &asked), "/executions?children=yes&error=x").saysNot("were not searched")
	get(t, &fake{list: func(belay.Filter) (belay.Page, error) {
		return belay.Page{Next: id(9).String(), SearchedUntil: ago(time.Hour)}, nil
	}}, "/executions?workflow=rare").says("Children of executions are not searched.")
}

func query(t *testing.T, link *node) url.Values {
	t.Helper()
	u, err := url.Parse(link.attr["href"])
	if err != nil {
		t.Fatal(err)
	}
	return u.Query()
}

// A reader who follows the links "Older" from the first page to the last sees each execution once.
func TestExecutionsArePaged(t *testing.T) {
	var asked []belay.Filter
	f := listed(many(120), &asked)
	seen := make(map[string]int)
	pages, next := 0, "/executions?state="
	for next != "" {
		a := get(t, f, next)
		pages++
		next = ""
		for _, l := range a.root.class("list")[0].all("a") {
			seen[l.attr["href"]]++
		}
		for _, l := range a.root.all("a") {
			if l.attr["rel"] == "next" {
				next = l.attr["href"]
			}
		}
		if pages > 1 {
			a.says("← Newest")
		}
	}
	if pages != 3 || len(seen) != 120 {
		t.Errorf("%d pages show %d executions, want 3 and 120", pages, len(seen))
	}
}

// The page of an empty list says what the reader can do, and shows whether the list is empty
// because of a filter.
func TestEmptyListsSayWhatToDo(t *testing.T) {
	f := &fake{}
	get(t, f, "/executions").says("Nothing has been submitted yet.", "belay run -- make test", "all 0")
	get(t, f, "/executions?workflow=x").says("No execution matches the filter.", "Show all")
	get(t, f, "/executions?key=x").saysNot("were not searched")
	get(t, f, "/executions?cursor=x").says("There are no older executions.")
}

// If not all executions were counted, the page says so.
func TestCountsSayIfTheyAreIncomplete(t *testing.T) {
	f := &fake{list: func(q belay.Filter) (belay.Page, error) {
		return belay.Page{Executions: many(8), Next: "more", Counts: &belay.StateCounts{
			States: map[belay.State]int{belay.Pending: 9000, belay.Failed: 7}, More: true,
		}}, nil
	}}
	get(t, f, "/executions").says("all 9007+", "pending 9000+", "failed 7+", "cancelled 0+",
		"Only the newest executions were counted")
}

// A reader who pastes an id or an idempotency key gets to its execution, and to a list if executions of several
// workflows have the key.
func TestPastedIDsAndKeysLeadToTheirExecutions(t *testing.T) {
	var asked []belay.Filter
	keys := map[string][]belay.Execution{
		"order 17": {{ID: id(7), Workflow: "build", State: belay.Running}}, "twice": many(2),
	}
	f := &fake{list: func(q belay.Filter) (belay.Page, error) {
		asked = append(asked, q)
		return belay.Page{Executions: keys[q.Key]}, nil
	}}
	to := func(text string) (status int, address string) {
		a := get(t, f, "/executions?find="+url.QueryEscape(text))
		return a.status, a.header.Get("Location")
	}
	for text, want := range map[string]string{
		"  " + id(3).String() + "\n": "/executions/" + id(3).String(),
		"order 17":                   "/executions/" + id(7).String(),
		"twice":                      "/executions?key=twice",
	} {
		if status, address := to(text); status != http.StatusSeeOther || address != want {
			t.Errorf("%q leads to %d %q, want %q", text, status, address, want)
		}
	}
	get(t, f, "/executions?key=twice").says("all 2", "pending 1", "Idempotency key")
	if q := asked[len(asked)-1]; q.Key != "twice" || !q.Children {
		t.Errorf("the list of a key asks for %+v", q)
	}
	for _, text := range []string{
		"none", "//evil.example/", "https://evil.example", "<script>x</script>", "\x00", "\xff", strings.Repeat("k", 300),
	} {
		asked = nil
		if status, address := to(text); status != http.StatusOK || address != "" {
			t.Errorf("%q leads to %d %q", text, status, address)
		}
		if len(asked) > 0 && (asked[0].Key == "\x00" || asked[0].Key == "\xff" || len(asked[0].Key) > belay.MaxName) {
			t.Errorf("the Backend was asked for the key %q", asked[0].Key)
		}
	}
	get(t, f, "/executions?find=none").says("No execution has the id or idempotency key none .")
}

// A malformed label is an error, because a list without it would show other executions than the reader expects.
func TestMalformedLabelsAreRefused(t *testing.T) {
	var asked []belay.Filter
	many := "/executions?label=" + strings.Join(strings.Fields("a= b= c= d= e= f= g= h= i="), "&label=")
	for _, address := range []string{"/executions?label=x", "/executions?label=%3Dx", many} {
		if a := get(t, listed(nil, &asked), address); a.status != http.StatusBadRequest || len(asked) > 0 {
			t.Errorf("%s: %d, asked %v", address, a.status, asked)
		}
	}
}

// The pages only read from the Backend. A browser may load only their style sheet, their icon and their script, and run
// no script that stands in a page.
func TestPagesAreHarmless(t *testing.T) {
	h := New(running(), Options{})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, here+id(1).String(), strings.NewReader("x=1")))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	a := get(t, running(), here+id(1).String())
	policy := a.header.Get("Content-Security-Policy")
	if want := "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"; policy != want {
		t.Errorf("the policy is %q, want %q", policy, want)
	}
	if got := a.header.Get("X-Content-Type-Options") + " " + a.header.Get("Cache-Control"); got != "nosniff no-store" {
		t.Errorf("headers: %s", got)
	}
	if s := a.root.all("script"); len(s) != 1 || s[0].words() != "" || strings.Contains(a.body, "style=") {
		t.Error("the page contains elements that its own policy forbids")
	}
}

// The files that a page loads exist, and their addresses change with their content.
func TestAssetsAreServedUnderAddressesOfTheirContent(t *testing.T) {
	a := get(t, running(), "/executions")
	var addresses []string
	for _, l := range a.root.all("link") {
		addresses = append(addresses, l.attr["href"])
	}
	for _, s := range a.root.all("script") {
		addresses = append(addresses, s.attr["src"])
	}
	if len(addresses) != 3 {
		t.Fatalf("the page loads %v", addresses)
	}
	for _, address := range addresses {
		got := get(t, running(), address)
		if got.status != 200 || got.body == "" || !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d, %s", address, got.status, got.header.Get("Cache-Control"))
		}
		path, _, _ := strings.Cut(address, "?")
		if got := get(t, running(), path+"?v=old"); got.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("the address of another version may be cached: %s", got.header.Get("Cache-Control"))
		}
	}
}
