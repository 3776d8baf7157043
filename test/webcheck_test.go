package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Rule: every page is valid HTML; accessible by the rules of WCAG 2.2 AA that axe can test, in a light and a dark
// theme; has one heading of the first level, landmarks, a link that skips the navigation, and a label for each field;
// can be used with a keyboard, with a visible focus; is not wider than a small screen; writes nothing to the console;
// and requests nothing from other hosts. With -long a browser opens all forms and all named executions, and several
// pages of each kind.
func TestEveryPageIsWellMade(t *testing.T) {
	t.Parallel()
	s := newShowcase(t)
	modules, _ := npmProject(t, "web-npm", "package.json", "package-lock.json")
	axe := read(t, filepath.Join(modules, "node_modules/axe-core/axe.min.js"))
	most := 1
	if *long {
		most = 4
	}
	pages := s.crawl(most)
	complete(t, pages)
	t.Run("html", func(t *testing.T) { validate(t, modules, pages) })
	t.Run("browser", func(t *testing.T) {
		b := s.browse(t)
		if !*long && *shots == "" {
			pages = sampleOf(pages)
		}
		for _, p := range pages {
			if strings.Contains(p.kind, "live") { // the same page, which reloads itself
				continue
			}
			if m := stops.FindStringSubmatch(p.html); m != nil { // it reloads itself
				p.path = html.UnescapeString(m[1])
			}
			t.Run(p.name, func(t *testing.T) {
				if b.t = t; *shots != "" {
					b.picture(p)
				} else {
					b.examine(p, axe)
				}
			})
		}
	})
}

// stops finds the link that stops the reloads of a page.
var stops = regexp.MustCompile(`<a class="quiet" href="([^"]*)">Reloaded`)

// validate lets the W3C's checker read all pages, and the style sheet.
func validate(t *testing.T, modules string, pages []webPage) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range pages {
		must(t, os.WriteFile(filepath.Join(dir, p.name+".html"), []byte(p.html), 0o600))
	}
	copyInto(t, "../internal/webui/assets/belay.css", filepath.Join(dir, "belay.css"))
	copyInto(t, "../internal/webui/assets/icon.svg", filepath.Join(dir, "icon.svg"))
	java, err := exec.LookPath("java")
	if err != nil {
		t.Fatalf("java is needed: %v (scripts/need.sh java:default-jre-headless)", err)
	}
	jar := filepath.Join(modules, "node_modules/vnu-jar/build/dist/vnu.jar")
	cmd := exec.CommandContext(t.Context(), java, "-jar", jar, "--format", "json", "--exit-zero-always",
		"--also-check-css", "--also-check-svg", dir)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	must(t, cmd.Run())
	var report struct {
		Messages []struct {
			Type, SubType, URL, Message, Extract string
			LastLine                             int
		}
	}
	if err := json.Unmarshal(problems.Bytes(), &report); err != nil {
		t.Fatalf("the report of the checker: %v\n%s", err, clip(problems.String()))
	}
	for _, m := range report.Messages {
		// The pages are XML too, so that tests can read them; then void elements end with a slash. The checker does not
		// know the properties of SVG 2.
		if !strings.HasPrefix(m.Message, "Trailing slash on void elements") &&
			!strings.Contains(m.Message, "“vector-effect”") {
			t.Errorf("%s %s %s:%d: %s\n%s", m.Type, m.SubType, filepath.Base(m.URL), m.LastLine, m.Message, m.Extract)
		}
	}
}

// browse opens a browser and signs in as anna.
func (s *showcase) browse(t *testing.T) *browser {
	t.Helper()
	b := newBrowser(t, s.url)
	b.do("sign in", chromedp.Navigate(s.url+"/login"), enter(`input[name=key]`, s.admin), click(`form.act button`),
		see(`form.visitor`))
	_, err := chromedp.Call(b.ctx, emulation.SetFocusEmulationEnabled,
		emulation.SetFocusEmulationEnabledParams{Enabled: true})
	must(t, err)
	return b
}

// open shows a page.
func (b *browser) open(p webPage) {
	b.t.Helper()
	b.expect(p)
	b.do("open "+p.path, chromedp.Navigate(b.base+p.path), see("main h1"))
}

// wear shows the present page in a theme and a width.
func (b *browser) wear(theme string, width int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	})
	must(b.t, err)
	b.do("set the width", chromedp.EmulateViewport(width, 900))
}

// ask evaluates an expression that finds problems.
func (b *browser) ask(about, expression string) {
	b.t.Helper()
	problems, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Errorf("%s: %v", about, err)
	}
	for _, problem := range problems {
		b.t.Errorf("%s: %s", about, problem)
	}
}

// axeRules are the tags of the rules of WCAG 2.2, level AA.
const axeRules = `axe.run(document, {resultTypes: ['violations'], runOnly: {type: 'tag', values: [
	'wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}}).then(r => r.violations.flatMap(
	v => v.nodes.map(n => v.id + ': ' + n.target.join(' ') + ': ' + n.failureSummary + ' ' + n.html.slice(0, 200))))`

// outline finds faults of the structure that a reader without the style sheet would notice.
const outline = `(() => {
	const all = s => [...document.querySelectorAll(s)], bad = [];
	if (all('h1').length !== 1) bad.push(all('h1').length + ' headings of the first level');
	let last = 0;
	for (const h of all('h1, h2, h3, h4, h5, h6')) {
		const level = +h.tagName[1];
		if (level > last + 1) bad.push('the heading ' + h.textContent + ' skips a level');
		if (!h.textContent.trim()) bad.push('a heading is empty');
		last = level;
	}
	for (const s of ['header', 'main', 'footer']) if (all('body > ' + s).length !== 1) bad.push('no single ' + s);
	if (!location.pathname.startsWith('/login') && all('header nav').length !== 1) bad.push('no navigation');
	const skip = document.querySelector('a, button, input');
	if (!skip.matches('a[href="#main"]')) bad.push('the first link does not skip the navigation');
	for (const e of all('input:not([type=hidden]), select, textarea'))
		if (!e.labels.length && !e.getAttribute('aria-label')) bad.push('no label: ' + e.outerHTML);
	for (const e of all('a[href], button'))
		if (!e.textContent.trim() && !e.getAttribute('aria-label')) bad.push('no text: ' + e.outerHTML);
	const ids = all('[id]').map(e => e.id);
	for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) bad.push('two elements with the id ' + id);
	return bad;
})()`

// wide finds what makes the document wider than the screen, and texts that are cut off.
const wide = `(() => {
	const width = document.documentElement.clientWidth, bad = [];
	if (document.documentElement.scrollWidth > width) {
		bad.push('the document has a width of ' + document.documentElement.scrollWidth);
		for (const e of document.querySelectorAll('body *'))
			if (Math.max(e.getBoundingClientRect().right, e.scrollWidth) > width + 1 &&
				!e.parentElement.closest('.scroll, pre')) bad.push(e.outerHTML.slice(0, 150));
	}
	return bad.slice(0, 8);
})()`

// Before the first key, and at each Tab, the script notes the element with the focus, which the browser has scrolled
// into view by then.
const beginTabs = `(() => {
	document.activeElement.blur();
	const seen = window.tabs = {seen: new Set(), bad: []};
	document.addEventListener('keydown', () => {
		const e = document.activeElement, r = e.getBoundingClientRect(), s = getComputedStyle(e);
		if (e === document.body || seen.seen.has(e)) return;
		seen.seen.add(e);
		const name = e.outerHTML.slice(0, 150);
		if (s.outlineStyle === 'none' || parseFloat(s.outlineWidth) < 1) seen.bad.push('no outline: ' + name);
		if (!r.width || !r.height || r.right < 1 || r.bottom < 1 || r.left > innerWidth || r.top > innerHeight)
			seen.bad.push('the focus is out of view: ' + name);
	}, true);
	return window.tabs.all = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, ' +
		'textarea, summary, [tabindex="0"]')].filter(e => e.checkVisibility()),
		// each part of a date, and its calendar, has the focus in turn
		window.tabs.all.length + 8 * document.querySelectorAll('input[type=date], input[type=datetime-local]').length;
})()`

const endTabs = `document.activeElement.blur(), tabs.bad.concat(tabs.all.filter(e => !tabs.seen.has(e)).map(
	e => 'Tab does not reach ' + e.outerHTML.slice(0, 200)))`

func (b *browser) examine(p webPage, axe string) {
	b.t.Helper()
	b.wear("light", 1280)
	b.open(p)
	b.ask("outline", outline)
	b.do("begin", chromedp.Evaluate[chromedp.Void](axe+"; 0"))
	b.ask("axe, light, 1280 px", axeRules)
	n, err := chromedp.Run(b.ctx, chromedp.Evaluate[int](beginTabs))
	must(b.t, err)
	b.do("press Tab", chromedp.KeyEvent(strings.Repeat(kb.Tab, n+2)))
	b.ask("keyboard", endTabs)

	b.wear("dark", 390)
	b.ask("width", wide)
	b.ask("axe, dark, 390 px", axeRules)
}

// picture writes pictures of a page.
func (b *browser) picture(p webPage) {
	b.t.Helper()
	b.open(p)
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			b.wear(theme, width)
			shot, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
			must(b.t, err)
			name := fmt.Sprintf("%s-%d-%s.png", p.name, width, theme)
			must(b.t, os.WriteFile(filepath.Join(*shots, name), squeeze(b.t, shot), 0o644))
		}
	}
}
