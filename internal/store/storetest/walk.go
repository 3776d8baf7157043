package storetest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The durations of the random walks in make unit, make test-long and make quick. The variable
// STORETEST_FOR=10m replaces them; the flag -rapid.checks sets a number of walks instead.
const (
	walkFor   = 6 * time.Second
	walkLong  = 30 * time.Second
	walkShort = 2 * time.Second
)

// walk sends commands to the memory store and to the store under test, and compares every reply and
// all rows after each step. It begins with the tour, a fixed sequence in which every command is
// accepted, and continues with random commands.
func walk(t *testing.T, open Open) {
	seen := make(map[string]int)
	rapid.Check(t, func(rt *rapid.T) {
		if len(seen) == 0 {
			tour(newWalker(t, rt, open, seen))
		}
	})
	if missing := unseen(seen); len(missing) > 0 {
		t.Errorf("these never succeeded: %s", strings.Join(missing, ", "))
	}
	end, walks := time.Now().Add(walkTime(t)), 0
	failing := false // after a failure all further walks run, because rapid uses them to shorten the failing walk
	over := func() bool { return counted() == "" && !failing && time.Now().After(end) }
	for once := true; once || counted() == "" && !over(); once = false {
		rapid.Check(t, func(rt *rapid.T) {
			if over() {
				return
			}
			walks++
			failing = true
			newWalker(t, rt, open, seen).walk(rt)
			failing = false
		})
	}
	t.Logf("%d walks; commands that succeeded: %v", walks, seen)
}

// walk takes random steps.
func (w *walker) walk(rt *rapid.T) {
	defer w.close()
	w.seed()
	w.send(rt, []machine.Command{w.openWorker(), w.openWorker(), w.submit(), w.submit(), w.submit()})
	rt.Repeat(map[string]func(*rapid.T){
		"batch": w.batch, "batch 2": w.batch, "batch 3": w.batch, "batch 4": w.batch, "batch 5": w.batch,
		"batch 6": w.batch,
		"follow":  w.follow, "sweep": w.sweep, "time": w.time, "mark": w.mark, "prune": w.prune, "list": w.list,
		"reopen": w.reopen, "": w.check,
	})
	w.compare(rt, allExecutions)
}

// counted returns the number of walks in the flag -rapid.checks, empty if the flag was not given.
func counted() string {
	f := flag.Lookup("rapid.checks")
	if f == nil || f.Value.String() == f.DefValue {
		return ""
	}
	return f.Value.String()
}

func walkTime(t *testing.T) time.Duration {
	text := os.Getenv("STORETEST_FOR")
	switch {
	case text != "":
	case os.Getenv("BELAY_TEST_LONG") != "":
		return walkLong
	case testing.Short():
		return walkShort
	default:
		return walkFor
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("STORETEST_FOR: %v", err)
	}
	return d
}

// walker is the state of one random walk (a long sequence of commands).
type walker struct {
	t       *testing.T
	rt      *rapid.T
	clock   *Clock
	oracle  *memory.Store
	subject store.Store
	folder  *folder
	seen    map[string]int
	asked   asked
	now     *snapshot // the content of the memory store after the last step
	records map[belay.ExecutionID]*machine.Record
	judge   *judge

	rand      *rand.Rand
	made      uint64
	latest    time.Time
	sent      []machine.Command
	known     []belay.ExecutionID // ids of submissions, also of those that were never accepted
	workers   []belay.WorkerID
	leases    []belay.Lease // all leases that were ever won
	ops       []belay.OpID
	late      []belay.Save // first tries whose repetition has arrived earlier
	following []machine.Command
}

func newWalker(t *testing.T, rt *rapid.T, open Open, seen map[string]int) *walker {
	w := &walker{t: t, rt: rt, clock: NewClock(), seen: seen, judge: newJudge(), folder: &folder{TB: t}}
	w.latest = w.clock.Now()
	w.oracle = memory.New(w.clock.Now)
	w.subject = open(w.folder, w.clock)
	w.compare(rt, allExecutions)
	return w
}

func (w *walker) close() {
	if err := w.subject.Close(); err != nil {
		w.rt.Errorf("close: %v", err)
	}
	w.folder.remove()
}

// folder is a testing.TB whose temporary folders are removed after each walk, so that a thousand
// walks do not fill the disk.
type folder struct {
	testing.TB
	paths []string
}

// TempDir makes a folder.
func (f *folder) TempDir() string {
	path, err := os.MkdirTemp(f.TB.TempDir(), "walk")
	if err != nil {
		f.Fatal(err)
	}
	f.paths = append(f.paths, path)
	return path
}

func (f *folder) remove() {
	for _, path := range f.paths {
		_ = os.RemoveAll(path)
	}
}

// send sends commands to both stores.
func (w *walker) send(rt *rapid.T, commands []machine.Command) []machine.Reply {
	w.rt = rt
	rt.Logf("send %s", describe(commands))
	want, err := fold(w.t.Context(), w.oracle, commands)
	if err != nil {
		rt.Fatalf("the memory store refused %s: %v", describe(commands), err)
	}
	got, err := fold(w.t.Context(), w.subject, commands)
	if err != nil {
		rt.Fatalf("the store refused %s: %v", describe(commands), err)
	}
	for i, c := range commands {
		if diff := cmp.Diff(want[i], got[i], equal...); diff != "" {
			rt.Fatalf("reply to %s differs (-memory +store):\n%s", describe(commands[i:i+1]), diff)
		}
		w.remember(c, want[i])
	}
	return want
}

// remember notes ids to which later commands may refer.
func (w *walker) remember(c machine.Command, r machine.Reply) {
	name := label(c)
	if x, ok := c.(*machine.Claim); ok {
		switch {
		case len(r.Claims) == 0:
			name += " of nothing"
		case x.Repeat:
			name = "repeated " + name
		}
	}
	if r.Replayed {
		name = "repeated " + name
	}
	if r.Err == nil {
		w.seen[name]++
	}
	for i := range r.Claims {
		w.leases = append(w.leases, leaseOf(&r.Claims[i].Execution))
	}
	w.following = append(w.following, r.Follow...)
	w.judge.note(c, r)
}

// check compares all lists, and all rows of the executions that changed in the last step; the end
// of a walk compares everything.
func (w *walker) check(rt *rapid.T) {
	w.compare(rt, func(x *machine.Execution) bool {
		was := w.records[x.ID]
		return was == nil || !reflect.DeepEqual(was.Execution, x)
	})
}

// compare compares the rows of the two stores, and checks the guarantees of docs/guarantees.md.
func (w *walker) compare(rt *rapid.T, wanted func(*machine.Execution) bool) {
	w.rt = rt
	want, err := take(w.t.Context(), w.oracle, w.asked, wanted)
	if err != nil {
		rt.Fatalf("read the memory store: %v", err)
	}
	got, err := take(w.t.Context(), w.subject, w.asked, wanted)
	if err != nil {
		rt.Fatalf("read the store: %v", err)
	}
	if !reflect.DeepEqual(want, got) { // DeepEqual is faster than cmp.Diff
		if diff := cmp.Diff(want, got, equal...); diff != "" {
			rt.Fatalf("rows differ (-memory +store):\n%s", diff)
		}
	}
	w.now = want
	left := make(map[belay.ExecutionID]*machine.Record)
	for _, rec := range want.Listed {
		if was := w.records[rec.Execution.ID]; was != nil {
			left[rec.Execution.ID] = was
		}
	}
	for _, rec := range want.Records {
		left[rec.Execution.ID] = rec
	}
	w.records = left
	w.judge.check(rt, want, left)
}

// describe formats commands for people.
func describe(commands []machine.Command) string {
	var all []string
	for _, c := range commands {
		all = append(all, fmt.Sprintf("%T%+v", c, c))
	}
	return strings.Join(all, "; ")
}
