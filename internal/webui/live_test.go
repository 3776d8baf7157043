package webui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

// liveness is how a page is kept up to date.
type liveness struct {
	every, stream, page string // for the script; empty if it does not keep the page up to date
	reload              string // of a browser without JavaScript; empty if the page does not reload itself
	link, plain         string // the links that change it, with JavaScript and without
}

// livenessOf reads it from a page. A browser with JavaScript must find no reload.
func livenessOf(t *testing.T, a *answer) (l liveness) {
	t.Helper()
	main := a.root.all("main")[0]
	l.every, l.stream, l.page = main.attr["data-every"], main.attr["data-stream"], main.attr["data-page"]
	if n := len(a.root.all("script")); n != 1 {
		t.Errorf("%d scripts", n)
	}
	for _, n := range a.root.all("noscript") {
		for _, m := range n.all("meta") {
			l.reload = m.attr["content"]
		}
		for _, link := range n.all("a") {
			l.plain = link.attr["href"]
		}
	}
	if n := strings.Count(a.body, `http-equiv="refresh"`); n > 1 || n == 1 && l.reload == "" {
		t.Errorf("the page reloads itself beside its script:\n%s", a.body)
	}
	if links := main.class("quiet"); len(links) > 0 {
		l.link = links[0].attr["href"]
	}
	return l
}

// The script keeps the page of an execution up to date until the execution ends, and lists always, unless the reader
// stops it. Without JavaScript, the page of an execution reloads itself, and a list only if the reader wants it.
func TestPagesAreKeptUpToDate(t *testing.T) {
	f := running()
	f.workers = manyWorkers(120, 0)
	one := here + id(1).String()
	stream := fmt.Sprintf("/live?after=%d&execution=%s", f.one.Seq, id(1))
	cases := map[string]liveness{
		one:                  {"3", stream, "", "3", one + "?live=off", one + "?live=off"},
		one + "?done=cancel": {"3", stream, one, "3; url=" + one, one + "?live=off", one + "?live=off"},
		one + "?live=off":    {link: one},
		one + "?after=2":     {},
		"/executions":        {"5", "/live", "", "", "/executions?live=off", "/executions?live=on"},
		"/executions?live=on&state=failed": {"5", "/live", "", "5", "/executions?live=off&state=failed",
			"/executions?live=off&state=failed"},
		"/executions?live=off": {link: "/executions?live=on"},
		"/dead?resolution=all&workflow=w": {"5", "/live", "", "", "/dead?live=off&resolution=all&workflow=w",
			"/dead?live=on&resolution=all&workflow=w"},
		"/dead?live=off": {link: "/dead?live=on"},
		"/login":         {}, "/nowhere": {}, "/workflows": {},
	}
	for _, path := range []string{"/schedules", "/webhooks", "/notifications"} {
		cases[path] = liveness{"5", "", "", "", path + "?live=off", path + "?live=on"}
	}
	for _, path := range []string{"/", "/overview", "/workers", "/queues"} {
		cases[path] = liveness{"5", "/live", "", "", path + "?live=off", path + "?live=on"}
		cases[path+"?live=on&x=1"] = liveness{"5", "/live", "", "5", path + "?live=off", path + "?live=off"}
		cases[path+"?live=off"] = liveness{link: path + "?live=on"}
	}
	for address, want := range cases {
		a := get(t, f, address)
		if got := livenessOf(t, a); got != want {
			t.Errorf("%s:\n%+v, want\n%+v", address, got, want)
		}
	}
	if next := nextOf(get(t, f, "/workers?live=on")); next != "/workers?cursor=50&live=on" {
		t.Errorf("the next page is %s", next)
	}
	f.one.State, f.one.FinishedAt = belay.Succeeded, noon
	if got := livenessOf(t, get(t, f, one)); got != (liveness{}) {
		t.Errorf("the page of an execution that has ended: %+v", got)
	}
}

// Rule: requests for one page that arrive while it is rendered share the next rendering, which begins after them;
// requests of visitors with other rights do not share it.
func TestRequestsShareARendering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p press
		var renders, readers atomic.Int64
		mine, other := sheet{address: "/"}, sheet{address: "/", scopes: [5]bool{true}}
		render := func(of string) func() printed {
			return func() printed {
				n := renders.Add(1)
				time.Sleep(time.Second)
				return printed{body: fmt.Appendf(nil, "%s %d", of, n)}
			}
		}
		var all sync.WaitGroup
		bodies := make(chan string, 300)
		read := func(s sheet, of string) {
			all.Go(func() {
				readers.Add(1)
				bodies <- string(p.get(s, render(of)).body)
			})
		}
		read(mine, "mine")
		synctest.Wait()
		for range 200 {
			read(mine, "mine")
		}
		synctest.Wait()
		read(other, "other")
		all.Wait()
		close(bodies)
		got := make(map[string]int)
		for b := range bodies {
			got[b]++
		}
		want := map[string]int{"mine 1": 1, "other 2": 1, "mine 3": 200}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if len(p.works) != 0 {
			t.Errorf("%d works are kept", len(p.works))
		}
	})
}

// Rule: if a rendering panics, the other requests that wait for it get an error, and the next request a page.
func TestARenderingThatPanicsSpoilsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p press
		var all sync.WaitGroup
		all.Go(func() {
			defer func() { _ = recover() }()
			p.get(sheet{}, func() printed { time.Sleep(time.Second); panic("broken") })
		})
		synctest.Wait()
		all.Go(func() {
			defer func() { _ = recover() }()
			p.get(sheet{}, func() printed { panic("broken too") })
		})
		synctest.Wait()
		all.Go(func() {
			if got := p.get(sheet{}, func() printed { return printed{status: http.StatusOK} }); got.status != 500 {
				t.Errorf("status %d", got.status)
			}
		})
		all.Wait()
		if got := p.get(sheet{}, func() printed { return printed{status: http.StatusOK} }); got.status != 200 {
			t.Errorf("then status %d", got.status)
		}
	})
}

// Rule: visitors with other rights get their own pages, also at the same moment.
func TestVisitorsDoNotShareTheirRights(t *testing.T) {
	h := New(running(), Options{Now: func() time.Time { return noon }})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			r := httptest.NewRequest(http.MethodGet, here+id(1).String(), nil)
			may := i%2 == 0
			name := []string{"reader", "operator"}[(i+1)%2]
			w := httptest.NewRecorder()
			h.ServeHTTP(w, WithVisitor(r, Visitor{Name: name, Allows: func(belay.Scope) bool { return may }}))
			if got := strings.Contains(w.Body.String(), "/cancel"); got != may {
				t.Errorf("%s: offers to cancel: %v", name, got)
			}
			if !strings.Contains(w.Body.String(), "<bdi>"+name+"</bdi>") {
				t.Errorf("%s got the page of another visitor", name)
			}
		})
	}
	all.Wait()
}
