package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// itemSlots is how many items a worker of itemProcess runs at the same time.
const itemSlots = 100

// itemProcess is a worker of a server. Its workflow, which its name names, writes the number of its item into a ledger
// and then takes as long as the input says.
func itemProcess() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ledger, err := os.OpenFile(os.Getenv(ledgerEnv), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	b, err := client.Dial(ctx, os.Getenv(urlEnv), client.Lazy(), client.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Concurrency: itemSlots, Grace: -1, Log: quiet})
	worker.Register(w, os.Getenv(nameEnv), func(ctx context.Context, in struct{ N, MS int }) (int, error) {
		if _, err := fmt.Fprintln(ledger, in.N); err != nil {
			return 0, err
		}
		select {
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		return in.N, nil
	})
	return errors.Join(w.Run(ctx), b.Close(), ledger.Close())
}

// items starts a worker for items, which uses this server.
func (m *member) items(workflow string) *started {
	f := m.group
	return f.start(f.role("items", nameEnv+"="+workflow, urlEnv+"=http://"+m.listen,
		ledgerEnv+"="+f.path("ledger of "+workflow)))
}

// foreach is an execution of a document that runs many items.
type foreach struct {
	*group
	id       belay.ExecutionID
	workflow string
	items    int
}

// foreach starts a document with so many items, each of which takes so long.
func (f *group) foreach(workflow string, items int, takes time.Duration) *foreach {
	f.t.Helper()
	text := fmt.Sprintf(`name: many
tasks:
  - id: each
    uses: %s
    foreach: 1..%d
    parallel: %d
    with: {n: "${{ item }}", ms: %d}
output: ${{ sum(tasks.each.output) }}
`, workflow, items, itemSlots, takes.Milliseconds())
	h, err := startDocument(f.t, f.members[0].client, text)
	if err != nil {
		f.t.Fatal(err)
	}
	return &foreach{f, h.ID(), workflow, items}
}

// startDocument submits a document without an input.
func startDocument(t *testing.T, b belay.Backend, text string) (workflow.Handle[any], error) {
	t.Helper()
	return workflow.Start[any](t.Context(), b, "document", map[string]string{"document": text})
}

// ledger returns how often each item of a workflow has begun.
func (f *group) ledger(workflow string) map[int]int {
	f.t.Helper()
	begun := map[int]int{}
	for _, line := range strings.Fields(read(f.t, f.path("ledger of "+workflow))) {
		n, err := strconv.Atoi(line)
		if err != nil {
			f.t.Fatal(err)
		}
		begun[n]++
	}
	return begun
}

// begun returns how many items of the workflow have begun.
func (f *group) begun(workflow string) int {
	f.t.Helper()
	return strings.Count(read(f.t, f.path("ledger of "+workflow)), "\n")
}

// until waits until so many items have begun, those of earlier documents included.
func (x *foreach) until(items int) {
	x.t.Helper()
	until(x.t, fmt.Sprintf("%d items have begun", items), func() bool { return x.begun(x.workflow) >= items })
}

// act carries out an action of an operator on the execution. It tries again while a server is down.
func (x *foreach) act(a belay.Action) {
	x.t.Helper()
	until(x.t, "a server carries out "+string(a), func() bool {
		_, err := x.members[0].client.Control(x.t.Context(), belay.Control{Execution: x.id, Action: a})
		if err != nil && belay.CodeOf(err) != belay.CodeUnavailable {
			x.t.Fatal(err)
		}
		return err == nil
	})
}

// stops checks that no further item begins.
func (x *foreach) stops() {
	x.t.Helper()
	before := -1
	until(x.t, "no further item begins", func() bool {
		now := x.begun(x.workflow)
		still := now == before
		before = now
		x.members[0].proc.after(300 * time.Millisecond)
		return still
	})
}

// ends waits for the end of the execution and checks its output.
func (x *foreach) ends(within time.Duration) {
	x.t.Helper()
	e := x.awaited(within)
	var sum int
	if err := json.Unmarshal(e.Output, &sum); err != nil || e.State != belay.Succeeded {
		x.t.Fatalf("the document is %s with the output %s (%v) and the error %v", e.State, e.Output, err, e.Error)
	}
	if want := x.items * (x.items + 1) / 2; sum != want {
		x.t.Errorf("the sum of the outputs is %d, want %d", sum, want)
	}
}

// awaited waits for the end of the execution.
func (x *foreach) awaited(within time.Duration) belay.Execution {
	x.t.Helper()
	deadline := time.Now().Add(within)
	for {
		e, err := x.members[0].client.Await(x.t.Context(), x.id, 10*time.Second)
		if err == nil && e.State.Terminal() {
			e, err = x.members[0].client.Execution(x.t.Context(), x.id)
			if err == nil {
				return e
			}
		}
		if err != nil && belay.CodeOf(err) != belay.CodeUnavailable {
			x.t.Fatal(err)
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("the document is %s after %s; %d items have begun", e.State, within, x.begun(x.workflow))
		}
	}
}

// children returns all children of the execution.
func (x *foreach) children() []belay.Execution {
	x.t.Helper()
	var all []belay.Execution
	f := belay.Filter{Parent: x.id, Limit: 1000}
	for {
		page, err := x.members[0].client.Executions(x.t.Context(), f)
		if err != nil {
			x.t.Fatal(err)
		}
		all = append(all, page.Executions...)
		if page.Next == "" {
			return all
		}
		f.Cursor = page.Next
	}
}
