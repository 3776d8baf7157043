package main

import (
	"strings"
	"testing"
)

// Rule: testreport prints every package's own line. It does not print the output of passing tests,
// and prints the whole output of failed and skipped tests.
func TestReport(t *testing.T) {
	const (
		pass = `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
`
		okLine = `{"Action":"output","Package":"p","Output":"PASS\n"}` + "\n" +
			`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}` + "\n" + `{"Action":"pass","Package":"p"}` +
			"\n"
		failLine = `{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}` + "\n" +
			`{"Action":"fail","Package":"p"}` + "\n"
	)
	for _, tt := range []struct {
		name, in, want, counts string
		verbose, fails         bool
	}{{
		name:   "a pass prints the package's line only",
		in:     pass + okLine,
		want:   "ok  \tp\t0.1s\n",
		counts: "1 tests in 1 packages passed",
	}, {
		name:    "with -v the output of passing tests is printed, without go test's own lines",
		in:      pass + okLine,
		verbose: true,
		want:    "chatter\nPASS\nok  \tp\t0.1s\n",
		counts:  "1 tests in 1 packages passed",
	}, {
		name: "a subtest's failure is shown and counted once, with its parent",
		in: `{"Action":"output","Package":"p","Test":"TestB/x","Output":"wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB/x"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- FAIL: TestB\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
` + failLine,
		want:   "wrong\n--- FAIL: TestB\nFAIL\tp\t0.1s\n",
		counts: "0 tests in 0 packages passed, 1 tests failed",
		fails:  true,
	}, {
		name: "a test cut off by a panic shows its output",
		in: `{"Action":"output","Package":"p","Test":"TestC","Output":"panic: boom\n"}
` + failLine,
		want:   "FAIL\tp\t0.1s\npanic: boom\n",
		counts: "0 tests in 0 packages passed, 1 tests failed",
		fails:  true,
	}, {
		name: "a skip shows its reason",
		in: pass + `{"Action":"output","Package":"p","Test":"TestD","Output":"no namespaces here\n"}
{"Action":"skip","Package":"p","Test":"TestD"}
` + okLine,
		want:   "no namespaces here\nok  \tp\t0.1s\n",
		counts: "1 tests in 1 packages passed, 1 skipped",
	}, {
		name: "a build failure is shown and fails",
		in: `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: undefined: x\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}
`,
		want:   "p.go:1: undefined: x\nFAIL\tp [build failed]\n",
		counts: "0 tests in 0 packages passed, 0 tests failed",
		fails:  true,
	}, {
		name: "a run without tests is no success",
		in: `{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s [no tests to run]\n"}` + "\n" +
			`{"Action":"pass","Package":"p"}` + "\n",
		want:   "ok  \tp\t0.1s [no tests to run]\n",
		counts: "0 tests in 1 packages passed",
		fails:  true,
	}} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out, tt.verbose)
			if err := r.read(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("printed %q, want %q", out.String(), tt.want)
			}
			if r.counts() != tt.counts {
				t.Errorf("counts %q, want %q", r.counts(), tt.counts)
			}
			if failed := r.failure() != ""; failed != tt.fails {
				t.Errorf("failure %q, want a failure: %v", r.failure(), tt.fails)
			}
		})
	}
}

// Rule: the slowest tests are listed, without subtests and quick tests.
func TestSlowest(t *testing.T) {
	r := newReport(&strings.Builder{}, false)
	in := `{"Action":"pass","Package":"x/p","Test":"TestQuick","Elapsed":1.9}
{"Action":"pass","Package":"x/p","Test":"TestB","Elapsed":2}
{"Action":"pass","Package":"x/p","Test":"TestA/sub","Elapsed":90}
{"Action":"fail","Package":"x/q","Test":"TestA","Elapsed":91.25}
`
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if want := "   91.2 s  q TestA\n    2.0 s  p TestB\n"; r.slowest() != want {
		t.Errorf("%q, want %q", r.slowest(), want)
	}
	for range 20 {
		r.times = append(r.times, timed{key{"x/p", "TestMany"}, 3})
	}
	if n := strings.Count(r.slowest(), "\n"); n != mostSlow {
		t.Errorf("%d lines", n)
	}
}
