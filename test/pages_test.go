package test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// browser is a tab of a real Chromium, without a network of its own. Errors of the console, dialogs, and requests to
// other hosts than the server, fail the test at its end. The browser's own icons, such as that of a calendar, are data
// URLs.
type browser struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp keeps the tab in it
	base string

	mu  sync.Mutex
	bad []string
	// away says that the server may be away, so that the console may say that requests have failed.
	away    bool
	refused []string // addresses of pages of errors, which the console reports
}

// newBrowser opens a browser. Errors of the console that contain one of the expected texts do not fail the test.
func newBrowser(t *testing.T, base string, expected ...string) *browser {
	t.Helper()
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience), chromedp.Flag("disable-gpu", true),
		chromedp.Env("HOME="+t.TempDir()))
	allocator, end := chromedp.NewExecAllocator(t.Context(), o...)
	ctx, closeTab := chromedp.NewContext(allocator)
	b := &browser{t: t, ctx: ctx, base: base}
	requests, console := chromedp.Events(ctx, network.RequestWillBeSent), chromedp.Console(ctx)
	dialogs := chromedp.Events(ctx, page.JavascriptDialogOpening)
	var watching sync.WaitGroup
	watching.Go(func() {
		for e, err := range dialogs {
			if err != nil {
				return
			}
			b.complain("a page opens a dialog: " + e.Message)
		}
	})
	watching.Go(func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "about" && u.Scheme != "data" && "http://"+u.Host != b.base {
				b.complain("a page requests " + e.Request.URL)
			}
		}
	})
	watching.Go(func() {
		for m, err := range console {
			if err != nil {
				return
			}
			known := b.expects(m.URL) ||
				slices.ContainsFunc(expected, func(s string) bool { return strings.Contains(m.Text, s) })
			if m.Type != "debug" && m.Type != "info" && !known {
				b.complain("the console says " + string(m.Type) + ": " + m.Text + " " + m.URL)
			}
		}
	})
	t.Cleanup(func() {
		closeTab()
		end()
		watching.Wait()
		for _, s := range b.bad {
			t.Error(s)
		}
	})
	return b
}

// expect says which page is opened next. If it is the page of an error, the console says so.
func (b *browser) expect(p webPage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.status >= 400 {
		b.refused = append(b.refused, b.base+p.path)
	}
}

func (b *browser) expects(address string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.refused, address)
}

// complain notes what must not happen on a page.
func (b *browser) complain(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.away || !strings.Contains(s, "Failed to load resource") {
		b.bad = append(b.bad, s)
	}
}

// do carries out steps, and fails the test with the text of the page if they do not end.
func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.shot("failed")
		b.t.Fatalf("%s: %v\n%s", what, err, b.text())
	}
}

// text returns the text of the page.
func (b *browser) text() (s string) {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	s, _ = chromedp.Run(ctx, chromedp.Text(chromedp.CSS("body")))
	return s
}

// until waits until the page says something. The page reloads itself meanwhile.
func (b *browser) until(says string) {
	b.t.Helper()
	until(b.t, "the page says "+says, func() bool { return strings.Contains(b.text(), says) })
}

// shot writes a screenshot into the directory of the variable BELAY_SHOTS, if it is set.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("BELAY_SHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}

func see(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(chromedp.CSS(selector))
}

func click(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(selector))
}

func enter(selector, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(selector), text)
}

// Rule: in a real browser a person signs in with a key, sees only the actions that the key allows, retries a failed
// execution, and cancels a running one with a reason, which the history shows with the name of the key.
func TestAPersonActsInABrowser(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	secret := func(name, scope string) string {
		return strings.TrimSpace(p.belay("keys", "create", "--name", name, "--scope", scope).want(0).out)
	}
	admin, reader := secret("anna", "admin"), secret("rita", "read")
	p.start(withEnv(p.command("worker", "--server", a.url, "--name", "w"), "BELAY_KEY="+secret("w", "worker")))
	submit := func(script string) string {
		cmd := p.command("submit", "command", "--server", a.url, "--attempts", "1", "--", "sh", "-c", script)
		return strings.TrimSpace(p.start(withEnv(cmd, "BELAY_KEY="+admin)).wait(patience).want(0).out)
	}
	failing, running := submit("exit 3"), submit("echo begun; sleep 600")
	b := newBrowser(t, a.url)

	page := a.url + "/executions/" + running
	b.do("a wrong key", chromedp.Navigate(page), see(`input[name=key]`),
		enter(`input[name=key]`, "bly_wrong"), click(`form.act button`),
		see(`p.late`))
	b.shot("login")
	b.do("a reader", enter(`input[name=key]`, reader), click(`form.act button`),
		see(`form.visitor`), chromedp.WaitNotPresent(chromedp.CSS(`.acts`)))
	b.do("sign out", click(`form.visitor button`), see(`input[name=key]`))
	b.do("an operator", enter(`input[name=key]`, admin), click(`form.act button`),
		see(`form.visitor`), chromedp.Navigate(page), see(`.acts`))
	b.until("running")
	b.shot("running")

	b.do("cancel", click(`.acts a[href$="/cancel"]`), see(`form.act button.danger`),
		enter(`input[name=reason]`, "it takes <b>too</b> long"))
	b.shot("cancel")
	b.do("cancel", click(`form.act button.danger`), see(`p.done`))
	b.until("cancelled")
	b.until("it takes <b>too</b> long")
	b.until("by anna")
	b.shot("cancelled")

	b.do("retry", chromedp.Navigate(a.url+"/executions/"+failing), see(`.remedies a[href$="/retry"]`))
	b.until("failed")
	b.do("retry", click(`.remedies a[href$="/retry"]`), see(`form.act`))
	b.shot("retry")
	b.do("retry", click(`form.act button`), see(`p.done`))
	b.until("token 2")
	b.shot("retried")

	b.do("cordon", chromedp.Navigate(a.url+"/workers"), click(`.acts a[href*="do=cordon"]`), see(`form.act`),
		enter(`input[name=reason]`, "its disk is full"), click(`form.act button`), see(`.acts a[href*="do=uncordon"]`))
	b.until("its disk is full")
	b.shot("workers")
	for _, page := range []string{
		"overview", "executions", "dead", "queues", "workflows", "schedules", "webhooks", "notifications",
	} {
		b.do("open "+page, chromedp.Navigate(a.url+"/"+page), see(`nav a[aria-current="page"]`))
		b.shot(page)
	}
}
