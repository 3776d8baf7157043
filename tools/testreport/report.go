package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json` and, for the build events, `go help buildjson`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds, for packages and tests that have ended
}

// key names a test, or a package if test is empty.
type key struct{ pkg, test string }

// report collects events and prints and counts their results. Subtests are not counted: a table
// with a thousand rows is one test.
type report struct {
	out     io.Writer
	verbose bool
	pending map[key][]string // output of tests that have not ended

	packages, passed, failed, skipped int
	brokenPackages                    []string
	times                             []timed
}

// timed is a test with the time that it took.
type timed struct {
	key
	seconds float64
}

func newReport(out io.Writer, verbose bool) *report {
	return &report{out: out, verbose: verbose, pending: map[key][]string{}}
}

// read reads events until the end of the input. Lines that are not events are printed unchanged.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.take(e)
			} else {
				fmt.Fprint(r.out, string(line))
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output(k, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			if !strings.Contains(e.Test, "/") {
				r.times = append(r.times, timed{k, e.Elapsed})
			}
			r.endTest(k, e.Action)
		}
	}
}

func (r *report) output(k key, text string) {
	switch {
	case bookkeeping(text):
	case k.test != "" && !r.verbose:
		r.pending[k] = append(r.pending[k], text)
	case k.test == "" && !r.verbose && (text == "PASS\n" || text == "FAIL\n"):
		// This line is not printed: the line of the package says the same.
	default:
		fmt.Fprint(r.out, text)
	}
}

func (r *report) endTest(k key, action string) {
	if action != "pass" {
		r.flush(k)
	}
	delete(r.pending, k)
	if strings.Contains(k.test, "/") {
		return
	}
	switch action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
	case "skip":
		r.skipped++
	}
}

func (r *report) endPackage(e event) {
	if e.Action != "skip" { // skip means that the package has no tests
		r.packages++
	}
	// If a panic or a timeout ends a package, some of its tests have not ended. The output of these
	// tests shows the cause.
	var open []key
	for k := range r.pending {
		if k.pkg == e.Package {
			open = append(open, k)
		}
	}
	slices.SortFunc(open, func(a, b key) int { return strings.Compare(a.test, b.test) })
	for _, k := range open {
		if e.Action == "fail" {
			r.endTest(k, "fail")
		}
		delete(r.pending, k)
	}
	if e.Action == "fail" {
		r.brokenPackages = append(r.brokenPackages, e.Package)
	}
}

func (r *report) flush(k key) {
	for _, text := range r.pending[k] {
		fmt.Fprint(r.out, text)
	}
}

// bookkeeping reports whether go test -v itself wrote a line that says nothing about a result, such
// as === RUN.
func bookkeeping(text string) bool {
	text = strings.TrimLeft(text, " ")
	return strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- PASS")
}

// counts describes the test run in one line.
func (r *report) counts() string {
	s := fmt.Sprintf("%d tests in %d packages passed", r.passed, r.packages-len(r.brokenPackages))
	if r.failed > 0 || len(r.brokenPackages) > 0 {
		s += fmt.Sprintf(", %d tests failed", r.failed)
	}
	if r.skipped > 0 {
		s += fmt.Sprintf(", %d skipped", r.skipped)
	}
	return s
}

// At most mostSlow tests are listed as the slowest, and only tests that took at least slow seconds.
const (
	mostSlow = 10
	slow     = 2.0
)

// slowest lists the tests that took longest, a line each, beginning with the slowest.
func (r *report) slowest() string {
	slices.SortStableFunc(r.times, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	var b strings.Builder
	for i, t := range r.times {
		if i == mostSlow || t.seconds < slow {
			break
		}
		fmt.Fprintf(&b, "%7.1f s  %s %s\n", t.seconds, t.pkg[strings.LastIndexByte(t.pkg, '/')+1:], t.test)
	}
	return b.String()
}

// failure returns why the run failed, or "" if it passed.
func (r *report) failure() string {
	switch {
	case len(r.brokenPackages) > 0:
		return "failed: " + strings.Join(r.brokenPackages, " ")
	case r.passed == 0:
		return "no test ran"
	}
	return ""
}
