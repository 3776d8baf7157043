package test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/belaydev/belay"
)

// eval evaluates an expression in the page.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", expression, err, b.text())
	}
	return v
}

// holds waits until a condition is true in the page.
func (b *browser) holds(condition string) {
	b.t.Helper()
	if !poll(patience, func() bool { return eval[bool](b, condition) }) {
		b.t.Fatalf("timed out before: %s\n%s", condition, b.text())
	}
}

// observe makes the page note when it shows an owner for the first time. A navigation loses the notes.
const observe = `window.shown = {};
new MutationObserver(() => {
  const owner = document.querySelector(".owner b")?.textContent;
  if (owner) shown[owner] ??= Date.now();
}).observe(document.body, {childList: true, subtree: true, characterData: true}); true`

// visitors are plain HTTP clients that follow a page as its script does: they read the page again when its stream tells
// of a change, and every few seconds.
type visitors struct {
	t      *testing.T
	http   *http.Client
	page   string
	mu     sync.Mutex
	shown  map[string][]time.Time // when the pages showed an owner for the first time
	reads  int
	broken []error
}

var (
	streamOfPage = regexp.MustCompile(`<main id="main" data-every="(\d+)" data-stream="([^"]+)"`)
	ownerOfPage  = regexp.MustCompile(`<section class="owner"[^>]*>\s*<h2[^>]*>Owner</h2>\s*<p><b><bdi>([^<]*)</bdi>`)
)

// come opens pages, and follows them until the test ends.
func (v *visitors) come(n int) {
	v.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	v.shown = make(map[string][]time.Time)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := v.follow(ctx); err != nil && ctx.Err() == nil {
				v.mu.Lock()
				defer v.mu.Unlock()
				v.broken = append(v.broken, err)
			}
		})
	}
	v.t.Cleanup(func() {
		cancel()
		all.Wait()
		v.http.CloseIdleConnections()
	})
}

func (v *visitors) get(ctx context.Context, address string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	a, err := v.http.Do(r)
	if err == nil && a.StatusCode != http.StatusOK {
		a.Body.Close()
		err = fmt.Errorf("%s: %s", address, a.Status)
	}
	return a, err
}

func (v *visitors) follow(ctx context.Context) error {
	known := ""
	read := func() ([]string, error) {
		a, err := v.get(ctx, v.page)
		if err != nil {
			return nil, err
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.reads++
		if m := ownerOfPage.FindSubmatch(text); len(m) > 1 && string(m[1]) != known {
			known = string(m[1])
			v.shown[known] = append(v.shown[known], time.Now())
		}
		return streamOfPage.FindStringSubmatch(string(text)), err
	}
	live, err := read()
	if err != nil || live == nil {
		return fmt.Errorf("the page is not live: %w", err)
	}
	base, _, _ := strings.Cut(v.page, "/executions")
	a, err := v.get(ctx, base+html.UnescapeString(live[2])) //nolint:bodyclose // closed below
	if err != nil {
		return err
	}
	defer a.Body.Close()
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(a.Body)
		for lines.Scan() {
			if lines.Text() == "event: changed" {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
		ended <- fmt.Errorf("the stream has ended: %w", lines.Err())
	}()
	every, err := time.ParseDuration(live[1] + "s")
	for ; err == nil; _, err = read() {
		select {
		case <-changed:
		case <-time.After(every):
		case err := <-ended:
			return err
		}
	}
	return err
}

// late returns how long after a time each of the n pages has shown an owner, in order.
func (v *visitors) late(owner string, after time.Time, n int) []time.Duration {
	v.t.Helper()
	until(v.t, fmt.Sprintf("%d pages show %s", n, owner), func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, err := range v.broken {
			v.t.Fatal(err)
		}
		return len(v.shown[owner]) == n
	})
	var all []time.Duration
	for _, at := range v.shown[owner] {
		all = append(all, at.Sub(after))
	}
	slices.Sort(all)
	return all
}

// begun returns when the run with a token began, by the clock of the store.
func (s tasks) begun(id belay.ExecutionID, token belay.Token) (at time.Time) {
	s.t.Helper()
	r := s.reader()
	defer r.Close()
	all, err := r.Events(s.t.Context(), belay.EventQuery{Execution: id})
	must(s.t, err)
	for _, e := range all {
		if e.Kind == "started" && e.Token == token {
			at = e.At
		}
	}
	if at.IsZero() {
		s.t.Fatalf("no run has the token %d", token)
	}
	return at
}

// Rule: after kill -9 of the owner, the open page of an execution shows the new owner within a second of the
// reassignment, without being loaded again, if one page is open and if 200 are.
func TestAnOpenPageShowsTheNewOwner(t *testing.T) {
	t.Parallel()
	const pages, most = 200, time.Second
	s := newTasks(t)
	one := s.hire("one")
	id := s.submit("build", "")
	s.begins("build")
	two := s.hire("two")
	b := newBrowser(t, s.url)
	page := s.url + "/executions/" + id.String()
	b.do("open the page", chromedp.Navigate(page), see(`.owner`))
	b.holds(`document.querySelector(".live").textContent === "Live · stop"`)
	eval[bool](b, observe)
	b.shot("live")

	takeover := func(old *started, owner string, token belay.Token) time.Time {
		t.Helper()
		old.signal(syscall.SIGKILL)
		b.holds(fmt.Sprintf(`shown[%q] > 0`, owner))
		began := s.begun(id, token)
		took := time.UnixMilli(int64(eval[float64](b, fmt.Sprintf(`shown[%q]`, owner)))).Sub(began)
		t.Logf("the page shows %s %s after the reassignment", owner, took)
		if took > most {
			t.Errorf("the page showed %s %s after the reassignment, want at most %s", owner, took, most)
		}
		return began
	}
	takeover(one, "two", 2)

	s.hire("three")
	v := &visitors{t: t, page: page}
	v.come(pages - 1)
	v.late("two", time.Now(), pages-1)
	began := takeover(two, "three", 3)
	late := v.late("three", began, pages-1)
	t.Logf("the other pages showed it after %s to %s, half of them after %s", late[0], late[len(late)-1],
		late[len(late)/2])
	if last := late[len(late)-1]; last > most {
		t.Errorf("a page showed the new owner %s after the reassignment, want at most %s", last, most)
	}

	s.free("build")
	b.holds(`document.title.startsWith("task · succeeded")`)
	b.holds(`document.querySelector(".live") === null`)
	b.shot("live ended")
	if !eval[bool](b, `shown.two > 0 && shown.three > 0`) {
		t.Error("the page was loaded again, and has lost its notes")
	}

	b.do("open the overview", chromedp.Navigate(s.url+"/overview"), see(`figure`))
	for _, words := range []string{
		"1 succeeded, 0 failed, 0 cancelled", "3 runs; in the slowest minute", "2 workers lost",
	} {
		b.until(words)
	}
	eval[bool](b, `document.querySelectorAll("figure details").forEach((d) => { d.open = true; }); true`)
	b.shot("plots")
}
