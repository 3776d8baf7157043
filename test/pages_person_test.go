package test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/belaydev/belay"
)

// tab opens a page in a new tab, which is in a window of its own or hides the other tabs of the first window.
func (b *browser) tab(page string, window bool) *browser {
	b.t.Helper()
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithNewWindow(window))
	b.t.Cleanup(end)
	_, err := chromedp.Run(ctx, chromedp.Title()) // the tab lasts as long as the context of its first action
	must(b.t, err)
	other := &browser{t: b.t, ctx: ctx, base: b.base}
	other.do("open a tab", chromedp.Navigate(page), see(`main`))
	return other
}

// how says how the page is kept up to date.
const how = `document.querySelector(".live").textContent`

func (b *browser) isLive() {
	b.t.Helper()
	b.holds(how + ` === "Live · stop"`)
}

func (s tasks) signals(id belay.ExecutionID, name string) {
	s.t.Helper()
	s.want(http.StatusAccepted, "POST", "/v1/executions/"+id.String()+"/signal", fmt.Sprintf(`{"name":%q}`, name))
}

// Rule: a live page changes only what differs: the focus, the scroll position and the selected text stay, and so does a
// form in which a person writes; the countdown of the lease goes on. The back button leads to the page before.
func TestALivePageLeavesThePersonAlone(t *testing.T) {
	t.Parallel()
	s := newTasks(t)
	s.hire("one")
	id := s.submit("build", "")
	s.begins("build")
	b := newBrowser(t, s.url)
	list := s.url + "/executions"
	b.do("open the list", chromedp.Navigate(list), see(`input[name=workflow]`))
	b.isLive()

	b.do("write", enter(`input[name=workflow]`, "bu"))
	b.holds(how + ` === "Waits until the form is sent · stop"`)
	next := s.submit("second", "")
	row := fmt.Sprintf(`document.querySelector('a[href="/executions/%s"]')`, next)
	b.do("write on", enter(`input[name=workflow]`, "i"))
	if eval[bool](b, row+` !== null || document.querySelector("input[name=workflow]").value !== "bui"`) {
		t.Error("the list changes while a person writes")
	}
	// Without its text the form is as it was, so that the list goes on.
	b.do("take it back", enter(`input[name=workflow]`, "\b\b\b"))
	b.holds(row + ` !== null`)

	b.do("open the execution", click(fmt.Sprintf(`a[href="/executions/%s"]`, id)), see(`.owner`))
	b.isLive()
	eval[bool](b, `window.before = {h1: document.querySelector("h1"), picture: document.querySelector(".countdown")};
		document.querySelector("[aria-labelledby=history].scroll").focus();
		getSelection().selectAllChildren(document.querySelector("p.id"));
		scrollTo(0, 300); before.y = scrollY; before.y > 0`)
	s.signals(id, "go")
	b.until("signal\tgo")
	b.holds(`before.picture !== document.querySelector(".countdown")`)
	for _, same := range []string{
		`before.h1 === document.querySelector("h1")`, `scrollY === before.y`,
		`document.activeElement.getAttribute("aria-labelledby") === "history"`,
		fmt.Sprintf(`getSelection().toString() === %q`, id.String()),
	} {
		if !eval[bool](b, same) {
			t.Error("the page has lost: " + same)
		}
	}
	b.holds(`(() => {
		const bar = document.querySelector(".countdown .moving");
		return bar && bar.width.animVal.value < bar.width.baseVal.value;
	})()`)
	b.do("back", chromedp.NavigateBack(), see(`input[name=workflow]`))
	b.isLive()
	b.do("stop", click(`.live`), chromedp.WaitNotPresent(chromedp.CSS(`main[data-every]`)))
}

// Rule: a page that is not up to date says so: when the server is away, and when it hangs. The page becomes live again
// by itself.
func TestAPageSaysThatItIsNotLive(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve()
	s := tasks{place: p, api: a, t: t}
	id := s.submit("build", "")
	b := newBrowser(t, s.url)
	b.away = true
	b.do("open the page", chromedp.Navigate(s.url+"/executions/"+id.String()), see(`.why`))
	b.isLive()
	eval[int](b, `window.mark = 1`)

	server.signal(syscall.SIGKILL)
	<-server.done
	b.until("Not live: the server does not answer. The page shows the state at")
	b.holds(how + ` === "Not live · stop"`)
	b.shot("not live")
	server, _ = p.serve("--listen", strings.TrimPrefix(s.url, "http://"))
	b.isLive()
	b.holds(`document.querySelector(".stale").textContent === ""`)

	server.signal(syscall.SIGSTOP)
	b.until("Not live: the server does not answer.")
	server.signal(syscall.SIGCONT)
	b.isLive()
	if !eval[bool](b, `window.mark === 1`) {
		t.Error("the page was loaded again")
	}
}

// Rule: nine open windows of one browser, whose HTTP/1.1 allows six connections, all show changes: only the newest four
// have streams. Hidden tabs have none, and become live when they are seen.
func TestManyPagesOfOneBrowser(t *testing.T) {
	t.Parallel()
	s := newTasks(t)
	id := s.submit("build", "")
	at := s.url + "/executions/" + id.String()
	hidden := newBrowser(t, s.url)
	hidden.do("open the page", chromedp.Navigate(at), see(`.why`))
	hidden.isLive()
	all := []*browser{hidden.tab(at, false)} // hides the first tab
	hidden.holds(`document.hidden && ` + how + ` !== "Live · stop"`)
	for range 8 {
		all = append(all, hidden.tab(at, true))
	}
	for _, old := range all[:5] {
		old.holds(how + ` === "Updated every 3 s · stop"`)
	}
	for _, young := range all[5:] {
		young.isLive()
	}
	s.signals(id, "go")
	for _, b := range all {
		b.until("signal\tgo")
	}
	if strings.Contains(hidden.text(), "signal\tgo") {
		t.Error("a hidden page reads itself again")
	}
	ctx, cancel := context.WithTimeout(hidden.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, page.BringToFront, cdp.Empty{})
	must(t, err)
	hidden.isLive()
	hidden.until("signal\tgo")
}
