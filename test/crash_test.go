package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// crashPoints is the number of fsyncs, from the start of a process, at which tests may kill the
// process.
const crashPoints = 30

// heldFor is the time by which strace delays each fsync: long enough for the test to read strace's
// line about the fsync, and to kill the process before the fsync happens.
const heldFor = 40 * time.Millisecond

// killAtSync runs a command under strace and kills it at its n-th fsync of the test's database,
// before the fsync happens. strace could inject a fault at the n-th call itself, but it counts the
// calls of each thread separately, and a Go program changes threads at any time. So strace only
// delays each fsync for a moment, and killAt counts the fsyncs that strace reports. killAtSync
// returns false if the command ended by itself before its n-th fsync.
func (p *place) killAtSync(n int, cmd *exec.Cmd) (result, bool) {
	p.t.Helper()
	told := p.reportSyncs(cmd)
	defer told.Close()
	x := p.start(cmd)
	hit := make(chan bool, 1)
	go func() { hit <- killAt(n, told) }()
	r := x.wait(patience)
	_ = told.Close()
	return r, <-hit
}

// reportSyncs changes a command so that it runs under strace, which reports each fsync of the test's database and
// delays it by heldFor. It returns the output of strace.
func (p *place) reportSyncs(cmd *exec.Cmd) *os.File {
	p.t.Helper()
	pipe := filepath.Join(p.path("tmp"), fmt.Sprintf("strace-%d", time.Now().UnixNano()))
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		p.t.Fatal(err)
	}
	told, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		p.t.Fatalf("strace is needed: %v (scripts/need.sh strace)", err)
	}
	args := []string{
		strace, "-f", "--seccomp-bpf", "-qqq", "-o", pipe, "-e", "trace=fsync,fdatasync",
		"-e", fmt.Sprintf("inject=fsync,fdatasync:delay_enter=%d", heldFor.Microseconds()),
	}
	for _, name := range []string{"belay.db", "belay.db-wal", "belay.db-journal", "."} {
		args = append(args, "-P", filepath.Join(p.data, name))
	}
	cmd.Path, cmd.Args = strace, append(append(args, cmd.Path), cmd.Args[1:]...)
	return told
}

var syncCall = regexp.MustCompile(`(?:^|\n)(\d+) +f(?:data)?sync\(`)

// killAt reads strace's output and kills the process at its n-th fsync.
func killAt(n int, told io.Reader) bool {
	var text []byte
	buf := make([]byte, 4096)
	for {
		k, err := told.Read(buf)
		if err != nil {
			return false
		}
		text = append(text, buf[:k]...)
		calls := syncCall.FindAllSubmatch(text, n)
		if len(calls) < n {
			continue
		}
		thread, err := strconv.Atoi(string(calls[n-1][1]))
		if err != nil {
			return false
		}
		pid, err := leader(thread)
		return err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil
	}
}

// leader returns the process that a thread belongs to.
func leader(thread int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "Tgid:"); ok {
			return strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return 0, fmt.Errorf("thread %d belongs to no process", thread)
}

// Rule: the real binary is killed between any two writes. Then the store contains every write that
// the binary has acknowledged, and each transition completely or not at all, and the same command
// can continue (guarantees G3 and G4).
func TestKillAtTheNthSync(t *testing.T) {
	t.Parallel()
	r := dice(t)
	for _, n := range sample(r, 5, crashPoints) {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			p := newPlace(t)
			repo := p.repository()
			j := newJourney(p, rand.New(rand.NewPCG(*seed, uint64(n))), repo, 6)
			got, hit := p.killAtSync(n, p.command(j.args...))
			if !hit {
				got.want(0)
				t.Logf("the command ended before its fsync %d", n)
			} else if got.code != 128+int(syscall.SIGKILL) {
				t.Fatalf("killed at its fsync %d the command ended in another way\n%s", n, got)
			}
			j.compareWithStore(got)
			p.transitionsAreWhole()
			last := p.start(p.command(j.args...)).wait(patience).want(0)
			j.compareWithStore(last)
			j.complete(repo)
			p.clean()
			p.sound()
		})
	}
}

// transitionsAreWhole checks that the store has either all rows of a transition or none.
func (p *place) transitionsAreWhole() {
	p.t.Helper()
	for _, e := range p.executions() {
		events := p.history(e.ID)
		if len(events) == 0 || events[0].Kind != "submitted" || e.Seq != events[len(events)-1].Seq {
			p.t.Errorf("G4: %s has seq %d and the history\n%s", e.ID, e.Seq, show(events))
		}
		if steps := len(savedSteps(p.t, events)); e.Checkpoints < steps {
			p.t.Errorf("G4: %s counts %d checkpoints and has %d steps\n%s", e.ID, e.Checkpoints, steps, show(events))
		}
		last := events[len(events)-1]
		if e.State.Terminal() != last.Final {
			p.t.Errorf("G4: %s is %s and its history ends with\n%s", e.ID, e.State, show(events))
		}
	}
}

// Rule: a program that contains the engine is killed between any two writes. Then the store
// contains, byte for byte, every write that the program printed as acknowledged: submissions with
// their input, and steps with their result (guarantees G3 and G4).
func TestKillAtTheNthSyncKeepsEveryByte(t *testing.T) {
	t.Parallel()
	r := dice(t)
	for _, n := range sample(r, 6, crashPoints) {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			p := newPlace(t)
			got, hit := p.killAtSync(n, p.role("acknowledge"))
			if !hit {
				got.want(0)
				t.Logf("the command ended before its fsync %d", n)
			} else if got.code != 128+int(syscall.SIGKILL) {
				t.Fatalf("killed at its fsync %d the command ended in another way\n%s", n, got)
			}
			p.acknowledged(got.out)
			p.transitionsAreWhole()
			again := p.start(p.role("acknowledge")).wait(patience).want(0)
			p.acknowledged(got.out + again.out)
			t.Logf("killed after %s, recovered after %s", got.took.Round(time.Millisecond),
				again.took.Round(time.Millisecond))
			for _, e := range p.executions() {
				if !e.State.Terminal() {
					t.Errorf("G5: %s is still %s", e.ID, e.State)
				}
			}
			p.sound()
		})
	}
}

// role returns a command that runs this test binary as one of the programs in the map roles.
func (p *place) role(name string, more ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Dir, cmd.Env = p.cwd, p.environment(append([]string{roleEnv + "=" + name}, more...)...)
	return cmd
}

// ack is one line of the output of acknowledge: a write that a call has confirmed.
type ack struct {
	Execution belay.ExecutionID
	Step      string          // if empty, the write is the submission
	Data      json.RawMessage // the input, or the step's result
}

// acknowledged checks that every acknowledged write is in the store, byte for byte.
func (p *place) acknowledged(out string) {
	p.t.Helper()
	n := 0
	for line := range strings.Lines(out) {
		var a ack
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &a) != nil {
			continue // the kill has cut off the last line
		}
		n++
		if a.Step == "" {
			if e := p.execution(a.Execution); string(e.Input) != string(a.Data) {
				p.t.Errorf("G3: %s was accepted with %d bytes of input and has %d", a.Execution, len(a.Data),
					len(e.Input))
			}
			continue
		}
		i := slices.IndexFunc(p.history(a.Execution), func(ev belay.Event) bool {
			return ev.Kind == "step" && ev.Name == a.Step && string(ev.Data) == string(a.Data)
		})
		if i < 0 {
			p.t.Errorf("G3: step %s of %s was acknowledged with %d bytes and is missing or different", a.Step,
				a.Execution,
				len(a.Data))
		}
	}
	p.t.Logf("%d acknowledgements", n)
}

// The numbers of executions, steps and bytes that acknowledge writes.
const (
	ackExecutions = 4
	ackSteps      = 5
	ackBytes      = 3000
)

// acknowledge is a program that submits executions under keys, runs them, and prints each write
// once a call has confirmed it.
func acknowledge() error {
	ctx := context.Background()
	b, err := embedded.Open(ctx, "sqlite:"+os.Getenv("BELAY_DATA"), embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer b.Close()
	var telling sync.Mutex
	tell := func(a ack) error {
		telling.Lock()
		defer telling.Unlock()
		return json.NewEncoder(os.Stdout).Encode(a) // Encode prints the line in one write
	}
	w := worker.New(b, worker.Options{Concurrency: 1, Log: slog.New(slog.DiscardHandler)})
	worker.Register(w, "acknowledge", func(ctx context.Context, in string) (int, error) {
		for i := range ackSteps {
			name := fmt.Sprintf("step %d", i)
			got, err := workflow.Step(ctx, name, func(context.Context) (string, error) { return content(in, i), nil })
			if err != nil {
				return 0, err
			}
			if err := tell(ack{workflow.Execution(ctx), name, quote(got)}); err != nil {
				return 0, err
			}
		}
		return len(in), nil
	})
	wctx, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- w.Run(wctx) }()
	err = submitAll(ctx, b, tell)
	stop()
	if werr := <-worked; err == nil {
		err = werr
	}
	return err
}

func submitAll(ctx context.Context, b belay.Backend, tell func(ack) error) error {
	for i := range ackExecutions {
		in := content("input", i)
		h, err := workflow.Start[int](ctx, b, "acknowledge", in, belay.IdempotencyKey(strconv.Itoa(i)))
		if err != nil {
			return err
		}
		if err := tell(ack{h.ID(), "", quote(in)}); err != nil {
			return err
		}
		n, err := h.Result(ctx)
		if err != nil {
			return err
		}
		if n != len(in) {
			return fmt.Errorf("execution %d: result %d, want %d", i, n, len(in))
		}
	}
	return nil
}

// content returns a text of about ackBytes bytes, which repeats two things: the first 20 bytes of
// the given word, and the number i.
func content(word string, i int) string {
	if len(word) > 20 {
		word = word[:20]
	}
	text := strings.Repeat(fmt.Sprintf("%s %d ü ", word, i), 1+ackBytes/(len(word)+6))
	return strings.ToValidUTF8(text[:ackBytes-i], "") + "."
}

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s)
	return b
}
