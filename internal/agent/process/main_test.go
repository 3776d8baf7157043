//go:build linux

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// TestMain makes the test binary also a supervisor, a helper, a bystander, or a parent that a test
// kills, depending on its arguments and environment.
func TestMain(m *testing.M) {
	Main(Helper{Name: "test-helper", Run: func() int {
		fmt.Println("helped", os.Args[1])
		return 7
	}}, Helper{Name: "attacker", Run: attack})
	if os.Getenv(bystander) != "" {
		standBy()
	}
	if os.Getenv(parentRun) != "" {
		parent()
	}
	os.Exit(m.Run())
}

// isolations lists the kinds of isolation that this user can use.
func isolations() []Isolation {
	if os.Geteuid() != 0 {
		return []Isolation{UserNamespace, Subreaper}
	}
	return []Isolation{PIDNamespace, UserNamespace, Subreaper}
}

// each runs a test for every kind of isolation. The tests run in parallel, because most of them
// wait most of the time.
func each(t *testing.T, test func(t *testing.T, kind Isolation)) {
	for _, kind := range isolations() {
		t.Run(strings.ReplaceAll(string(kind), " ", "-"), func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// id returns a run id that no other test uses.
func id(t *testing.T) string {
	name := strings.NewReplacer("/", ".", "#", "-", "=", "-", ",", "-").Replace(t.Name())
	return fmt.Sprintf("%s-%d-%d", name, os.Getpid(), time.Now().UnixNano())
}

// transcript stores the output of a command.
type transcript struct {
	mu     sync.Mutex
	all    bytes.Buffer
	stdout bytes.Buffer
	stderr bytes.Buffer
}

func (r *transcript) take(_ context.Context, c Chunk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Write(c.Data)
	if c.Stream == Stderr {
		r.stderr.Write(c.Data)
	} else {
		r.stdout.Write(c.Data)
	}
	return nil
}

func (r *transcript) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.String()
}

// shell returns a Command that runs a script.
func shell(t *testing.T, kind Isolation, script string) (Command, *transcript) {
	out := new(transcript)
	return Command{
		ID: id(t), Args: []string{"/bin/sh", "-c", script}, Dir: t.TempDir(),
		Inherit: Basics(), Isolation: kind, Output: out.take, Grace: 5 * time.Second,
	}, out
}

// begin starts c. At the end of the test it kills all processes of c and waits for their end.
func begin(t *testing.T, ctx context.Context, c Command) *Tree {
	t.Helper()
	tree, err := Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tree.Kill(nil)
		<-tree.Done()
	})
	return tree
}

// wait calls Wait with a time limit, so that a run that hangs fails only its own test.
func wait(t *testing.T, tree *Tree) (Result, error) {
	t.Helper()
	select {
	case <-tree.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the run has not ended within 30 s")
	}
	return tree.Wait()
}

// until waits until a condition is true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// remaining lists the processes of a run that still exist: processes with the run id in their
// environment, the supervisor, and processes whose arguments contain one of the given texts.
func remaining(t *testing.T, id string, argument ...string) []string {
	t.Helper()
	marked, err := host.FindEnv(Marker, func(v string) bool { return v == id })
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, f := range marked {
		left = append(left, fmt.Sprintf("%d (marked)", f.PID))
	}
	table, err := host.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		line := strings.ReplaceAll(string(raw), "\x00", " ")
		for _, arg := range append(argument, supervisorName+" "+id) {
			if strings.Contains(line, arg) && p.PID != os.Getpid() && !p.Ended() {
				left = append(left, fmt.Sprintf("%d (%s)", p.PID, line))
			}
		}
	}
	return left
}

// noneLeft fails the test if a process of a run still exists.
func noneLeft(t *testing.T, id string, argument ...string) {
	t.Helper()
	if left := remaining(t, id, argument...); len(left) > 0 {
		t.Errorf("still there: %s", strings.Join(left, ", "))
	}
}

// unique returns a number of seconds for the program sleep. No other test uses the same number, so
// the test finds its own processes by this number.
func unique() string {
	return fmt.Sprintf("600.%d", time.Now().UnixNano())
}

var errTest = errors.New("a cause of the test")

// stopped counts the processes of a run that are stopped.
func stopped(t *testing.T, id string) (n int) {
	t.Helper()
	marked, err := host.FindEnv(Marker, func(v string) bool { return v == id })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range marked {
		if s, err := host.Lookup(f.PID); err == nil && s.State == 'T' {
			n++
		}
	}
	return n
}
