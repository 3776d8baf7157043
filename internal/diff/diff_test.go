package diff

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Rule: the difference shows the changed lines with three lines around them.
func TestUnified(t *testing.T) {
	const ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
	for _, x := range []struct{ name, from, to, want string }{
		{"equal", ten, ten, ""},
		{"one line", ten, strings.Replace(ten, "5\n", "five\n", 1), `--- a
+++ b
@@ -2,7 +2,7 @@
 2
 3
 4
-5
+five
 6
 7
 8
`},
		{"the ends", ten, "0\n" + ten + "11\n", `--- a
+++ b
@@ -1,3 +1,4 @@
+0
 1
 2
 3
@@ -8,3 +9,4 @@
 8
 9
 10
+11
`},
		{"from nothing", "", "1\n", "--- a\n+++ b\n@@ -0,0 +1,1 @@\n+1\n"},
		{"to nothing", "1\n", "", "--- a\n+++ b\n@@ -1,1 +0,0 @@\n-1\n"},
		{"no line break at the end", "1\n2", "1\n2\n",
			"--- a\n+++ b\n@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+2\n"},
	} {
		if got := Unified("a", "b", x.from, x.to); got != x.want {
			t.Errorf("%s:\n%s\nwant\n%s", x.name, got, x.want)
		}
	}
}

// Rule: git makes the new text of the old text and the difference.
func TestGitAppliesTheDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range r.IntN(30) {
			b.WriteString(string(rune('a' + r.IntN(6))))
			b.WriteByte('\n')
		}
		return b.String()
	}
	dir := t.TempDir()
	for range 150 {
		from, to := text(), text()
		file, change := filepath.Join(dir, "text"), filepath.Join(dir, "diff")
		if from == "" || to == "" || from == to {
			continue // a difference without a text, or with an empty one, has another form in git
		}
		for path, content := range map[string]string{file: from, change: Unified("text", "text", from, to)} {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		apply := exec.Command("git", "apply", "-p0", "--whitespace=nowarn", change)
		apply.Dir, apply.Env = dir, append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		out, err := apply.CombinedOutput()
		got, rerr := os.ReadFile(file)
		if err != nil || rerr != nil || string(got) != to {
			t.Fatalf("%q to %q: %v\n%s\n%s\ngives %q", from, to, err, out, Unified("a", "b", from, to), got)
		}
	}
}

// Rule: no text makes the comparison slow. The limit is one of processor time, so that other programs do not count.
func TestTheDifferenceOfLargeTextsIsFast(t *testing.T) {
	const most = 256 << 10
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for name, x := range map[string][2]string{
		"line breaks": {strings.Repeat("\n", most), strings.Repeat("\n", most-1)},
		"two letters": {strings.Repeat("a\nb\n", most/4), strings.Repeat("b\na\n", most/4)},
		"one line":    {strings.Repeat("a", most), strings.Repeat("b", most)},
	} {
		before := used()
		d := Unified("a", "b", x[0], x[1])
		if took := used() - before; took > 2*time.Second || len(d) > 5*most {
			t.Errorf("%s: %d bytes in %s", name, len(d), took)
		}
	}
}
