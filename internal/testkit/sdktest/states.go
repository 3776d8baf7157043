package sdktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// watcher follows states in the background and checks each of its news.
type watcher struct {
	*env
	end  context.CancelFunc
	done chan error

	mu sync.Mutex
	promise.States
	position string
}

var errEnough = errors.New("enough")

// follows starts a follower. The follower ends with the case at the latest.
func (e *env) follows(q belay.StatusQuery) *watcher {
	e.Helper()
	w := &watcher{env: e, done: make(chan error, 1)}
	w.Query = q
	ctx, end := context.WithCancelCause(context.WithoutCancel(e.ctx))
	w.end = func() { end(errEnough) }
	go func() {
		w.done <- e.b.Follow(ctx, q, func(n belay.StatusNews) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if n.Position != "" {
				w.position = n.Position
			}
			return w.Follow(n)
		})
	}()
	e.Cleanup(func() { w.stop() })
	e.sleep(time.Second)
	return w
}

// stop ends the follower and returns its last position.
func (w *watcher) stop() string {
	w.Helper()
	w.end()
	if err, more := <-w.done; more {
		close(w.done)
		if !errors.Is(err, errEnough) {
			w.Errorf("the follower ended with %v", err)
		}
	}
	return w.position
}

// saw checks the states of the changes of an execution, and how many executions match now.
func (w *watcher) saw(id belay.ExecutionID, match int, states ...belay.State) {
	w.Helper()
	w.sleep(time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.Of(id); !slices.Equal(got, states) || len(w.Known) != match || len(w.Snapshots) > 1 {
		w.Errorf("changes %v, want %v; %d executions match, want %d; snapshots %v", got, states, len(w.Known), match,
			w.Snapshots)
	}
}

func pause(ctx context.Context, minutes int) (int, error) {
	_, err := work(ctx, "rest", time.Duration(minutes)*time.Minute)
	return 0, err
}

var follows = []testCase{
	{"a follower sees every change of state of every execution", func(e *env) {
		waiting := e.start(1)
		w := e.follows(belay.StatusQuery{})
		w.saw(waiting, 1)
		e.hire(register("w", pause))
		e.sleep(time.Second)
		id := e.start(1, belay.Label("team", "web")) // the commit that accepts it lets a worker claim it
		w.saw(id, 2, belay.Running)
		e.act(id, belay.ActionCancel)
		want(e, waiting, 0)
		wantEnd(e, id, belay.Cancelled, "")
		w.saw(id, 0, belay.Running, belay.Cancelled)
		w.saw(waiting, 0, belay.Running, belay.Succeeded)
		last := w.Changes[len(w.Changes)-1]
		if x := e.get(last.Execution); last.Seq != x.Seq || last.Workflow != "w" || last.Queue != x.Queue ||
			last.Generation != 1 || !last.At.Equal(x.FinishedAt) {
			e.Errorf("the last change is %+v, the execution %+v", last, x)
		}
	}},
	{"a follower sees only executions that match, and that they stop to match", func(e *env) {
		e.hire(register("w", pause))
		e.sleep(time.Second)
		begun := e.start(5, belay.Label("team", "web"))
		e.settle()
		web := e.follows(belay.StatusQuery{
			Labels: map[string]string{"team": "web"}, States: []belay.State{belay.Running, belay.Failed},
		})
		other, none := e.follows(belay.StatusQuery{Workflow: "other"}), e.follows(belay.StatusQuery{Queue: "none"})
		id := e.start(1, belay.Label("team", "web"), belay.Label("n", "1"))
		api := e.start(1, belay.Label("team", "api"))
		web.saw(id, 2, belay.Running)
		if web.Changes[0].Labels["n"] != "1" || web.Changes[0].Previous != 0 {
			e.Errorf("%+v", web.Changes)
		}
		want(e, begun, 0)
		web.saw(id, 0, belay.Running, belay.Succeeded)
		web.saw(begun, 0, belay.Succeeded)
		web.saw(api, 0)
		for _, w := range []*watcher{other, none} {
			if len(w.Changes) > 0 || len(w.Snapshots) != 1 {
				e.Errorf("%+v", w.Changes)
			}
		}
	}},
	{"a follower continues after its position without a snapshot", func(e *env) {
		e.hire(register("w", pause))
		w := e.follows(belay.StatusQuery{Idle: time.Second})
		e.sleep(time.Minute)
		at := w.stop()
		id := e.start(1)
		e.sleep(time.Second)
		again := e.follows(belay.StatusQuery{After: at})
		again.saw(id, 1, belay.Running)
		want(e, id, 0)
		again.saw(id, 0, belay.Running, belay.Succeeded)
		if len(again.Snapshots) > 0 {
			e.Errorf("snapshots %v", again.Snapshots)
		}
		again.stop()
		quiet := e.follows(belay.StatusQuery{After: at, Idle: time.Hour, Workflow: "none"})
		quiet.mu.Lock()
		if quiet.position == "" || len(quiet.Snapshots) > 0 {
			e.Errorf("without changes: the position %q, snapshots %v", quiet.position, quiet.Snapshots)
		}
		quiet.mu.Unlock()
		quiet.stop()
		e.sleep(time.Hour)
		late := e.follows(belay.StatusQuery{After: at})
		if fmt.Sprint(late.Snapshots) != "[lost]" {
			e.Errorf("snapshots %v after an hour", late.Snapshots)
		}
	}},
	{"a query that cannot be is refused", func(e *env) {
		for name, q := range map[string]belay.StatusQuery{
			"a position that is none": {After: "x"}, "a name with a control character": {Workflow: "a\x00"},
			"a label without a name": {Labels: map[string]string{"": "x"}},
		} {
			err := e.b.Follow(e.ctx, q, func(n belay.StatusNews) error { return fmt.Errorf("%s: got %+v", name, n) })
			if c := belay.CodeOf(err); c != belay.CodeInvalid && c != belay.CodeMalformed {
				e.Errorf("%s: %v", name, err)
			}
		}
	}},
}
