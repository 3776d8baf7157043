package test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belaydev/belay"
)

// tally counts and hashes the bytes that are written to it.
type tally struct {
	n    int64
	sum  hash.Hash
	last []byte
	each func() // a function to call after each write, or nil
}

func newTally() *tally { return &tally{sum: sha256.New()} }

func (y *tally) Write(b []byte) (int, error) {
	y.n += int64(len(b))
	y.sum.Write(b)
	y.last = append([]byte(nil), b[max(0, len(b)-100):]...)
	if y.each != nil {
		y.each()
	}
	return len(b), nil
}

// Rule: belay passes a hundred MiB of output through with bounded memory, and stores the first MiB
// and the end of the output, no more than the limit for stored output.
func TestAHundredMiBOfOutput(t *testing.T) {
	t.Parallel()
	const size = 100 << 20
	const most = 256 << 20 // the bound; belay took about a quarter of it when it was measured
	p := newPlace(t)
	through := newTally()
	var belays atomic.Pointer[started]
	memory := 0 // not from rusage, which includes the parent's memory before the exec
	through.each = func() {
		if x := belays.Load(); x != nil {
			memory = max(memory, x.resident())
		}
	}
	cmd := p.command("run", "--repo", "none", "--key", "k", "--", "sh", "-c",
		fmt.Sprintf("echo the first line; yes 0123456789abcdef0123456789abcde | head -c %d; echo the last line", size))
	x := p.startInto(cmd, through)
	belays.Store(x)
	r := x.wait(2 * patience).want(0)
	wantBytes := int64(size) + int64(len("the first line\nthe last line\n"))
	if through.n != wantBytes || !bytes.HasSuffix(through.last, []byte("the last line\n")) {
		t.Errorf("%d bytes passed through, ending with %q; want %d\n%s", through.n, through.last, wantBytes, r)
	}
	t.Logf("%d MiB in %s, at most %d MiB of memory", size>>20, r.took, memory>>20)
	if memory == 0 || memory > most {
		t.Errorf("belay took %d MiB of memory", memory>>20)
	}
	id := p.only().ID
	if got := p.result(id).Steps[0].Bytes; got != wantBytes {
		t.Errorf("the result says %d bytes, want %d", got, wantBytes)
	}
	log := p.artifact(id, "output")
	head, tail, dropped := strings.Cut(log, "\n… ")
	if len(log) > belay.MaxLog || len(head) < 1<<20 || !strings.HasPrefix(head, "the first line\n") {
		t.Errorf("%d bytes are kept, %d of them up to the gap", len(log), len(head))
	}
	if !dropped || !strings.HasSuffix(tail, "the last line\n") || len(tail) < 1<<20 {
		t.Errorf("the tail has %d bytes and ends with %q", len(tail), tail[max(0, len(tail)-40):])
	}
	if info, err := os.Stat(filepath.Join(p.data, "belay.db")); err != nil || info.Size() > 3*belay.MaxLog {
		t.Errorf("the database has %v bytes, %v", info.Size(), err)
	}
	p.clean()
}

// Rule: belay passes binary output through and stores it unchanged, also output that does not end
// with a line break. Belay's own messages begin on a new line.
func TestBinaryOutput(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.run("--repo", "none", "--key", "bin", "--", "sh", "-c",
		"head -c 300000 /dev/urandom; printf '\\000\\377\\033[2J'").want(0)
	if len(r.out) != 300006 || !strings.HasSuffix(r.out, "\x00\xff\x1b[2J") {
		t.Errorf("%d bytes passed through", len(r.out))
	}
	if log := p.belay("logs", "bin", "--raw").want(0).out; log != r.out {
		t.Errorf("%d bytes are kept and differ", len(log))
	}
	printable(t, r)
	r = p.run("--repo", "none", "--key", "open", "--", "sh", "-c", "printf abc; printf def >&2").want(0)
	if r.out != "abc" || !strings.Contains(r.err, "def\nbelay: ") {
		t.Errorf("output without an end of line\n%s", r)
	}
	if log := p.belay("logs", "open").want(0).out; log != "abcdef" && log != "defabc" {
		t.Errorf("kept as %q", log)
	}
	r = p.run("--repo", "none", "--", "printf", "%s", "\x1b[31mred\x07").want(0)
	if r.out != "\x1b[31mred\x07" {
		t.Errorf("an argument with control bytes arrived as %q", r.out)
	}
	printable(t, r)
	list := p.belay("ls").want(0)
	if strings.ContainsAny(list.out, "\x1b\x07") {
		t.Errorf("the list moves the cursor: %q", list.out)
	}
	p.clean()
}

// Rule: a command with ten thousand arguments gets every one of them.
func TestTenThousandArguments(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	args := append([]string{"--repo", "none", "--", "sh", "-c", "echo $#", "sh"}, many(10_000, "a")...)
	r := p.run(args...).want(0)
	if r.out != "10000\n" {
		t.Errorf("the command got %q arguments", r.out)
	}
	for line := range strings.Lines(r.err) {
		if len(line) > 1000 {
			t.Errorf("belay prints a line of %d bytes", len(line))
		}
	}
	p.clean()
}
