package belay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// The sizes of the workflows in the measure documents: a chain of tasks, of which each needs the one before, and a
// fan-out of a foreach. The tasks do nothing.
const (
	links    = 10
	branches = 100
)

// flows are the workflows of the measure documents, by name: each as a document, and as a function in Go that starts
// the same children.
var flows = []struct {
	name, document string
	inGo           func(ctx context.Context, _ any) (any, error)
}{
	{"chain", chainDocument(), chainInGo},
	{"fan", fmt.Sprintf("name: fan\ntasks:\n  - {id: each, uses: noop, foreach: '1..%d', parallel: %d}\n", branches,
		branches), fanInGo},
}

func chainDocument() string {
	var b strings.Builder
	b.WriteString("name: chain\ntasks:\n  - {id: t0, uses: noop}\n")
	for i := 1; i < links; i++ {
		fmt.Fprintf(&b, "  - {id: t%d, uses: noop, needs: t%d}\n", i, i-1)
	}
	return b.String()
}

func chainInGo(ctx context.Context, _ any) (any, error) {
	for i := range links {
		if _, err := workflow.Child[any](ctx, "t", "noop", nil, workflow.Key(i)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func fanInGo(ctx context.Context, _ any) (any, error) {
	all := make([]*workflow.Future[any], branches)
	for i := range all {
		all[i] = workflow.Go(ctx, "each", func(ctx context.Context) (any, error) {
			return workflow.Child[any](ctx, "t", "noop", nil)
		}, workflow.Key(i))
	}
	for _, f := range all {
		if _, err := f.Wait(ctx); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// documents measures how long a chain of ten tasks and a fan-out of a hundred take from the submission until the caller
// knows the end, as documents and in Go, one after the other. In this process it also counts the commits. Documents run
// on a worker of their own, as on a server.
func documents(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	w := worker.New(b.works, worker.Options{Concurrency: 2 * branches, Log: quiet()})
	worker.Register(w, "noop", func(context.Context, any) (any, error) { return nil, nil })
	for _, f := range flows {
		worker.Register(w, f.name, f.inGo)
	}
	crews := []*crew{run(ctx, w)}
	if b.server == nil {
		d := worker.New(b.works, worker.Options{Log: quiet()})
		worker.Register(d, runner.Workflow, (&runner.Runner{}).Run)
		crews = append(crews, run(ctx, d))
	}
	s, err := b.compare(ctx, r.N)
	for _, c := range crews {
		err = errors.Join(err, c.stopWorking())
	}
	if err != nil {
		return s, errors.Join(err, b.close())
	}
	if err := b.close(); err != nil {
		return s, err
	}
	all, err := counts(ctx, r.URL, tally{succeeded: int64(2 * (r.N + 1) * (links + branches + 2))})
	s.Counts = all[:1] // a run may suspend, so the other counts vary
	return s, err
}

// compare runs each workflow n times in each of its forms, after one run that fills caches.
func (b *bed) compare(ctx context.Context, n int) (trial.Sample, error) {
	took, commits := map[string][]time.Duration{}, map[string]int64{}
	for i := range n + 1 {
		for _, f := range flows {
			document := runner.Input{Document: f.document, Hash: definition.Hash([]byte(f.document)),
				Input: json.RawMessage(nil)}
			forms := []form{{f.name, runner.Workflow, document}, {f.name + "_go", f.name, nil}}
			if i%2 == 1 {
				slices.Reverse(forms)
			}
			for _, x := range forms {
				before, began := b.commits(), time.Now()
				h, err := workflow.Start[any](ctx, b.calls, x.workflow, x.input)
				if err == nil {
					_, err = h.Result(ctx)
				}
				if err != nil {
					return trial.Sample{}, fmt.Errorf("%s: %w", x.name, err)
				}
				if i > 0 {
					took[x.name] = append(took[x.name], time.Since(began))
					commits[x.name] += b.commits() - before
				}
			}
		}
	}
	s := trial.Sample{Values: map[string]float64{}}
	for name, all := range took {
		t := trial.TimesOf(all)
		s.Values[name+"_p50_ms"], s.Values[name+"_p95_ms"] = t.P50, t.P95
		if b.server == nil {
			s.Values[name+"_commits"] = float64(commits[name]) / float64(n)
		}
	}
	return s, nil
}

// form is a workflow of the measure documents in one of its forms, with the workflow of Belay that runs it.
type form struct {
	name, workflow string
	input          any
}

// commits returns how many transactions the engine has committed; 0 if it is in another process.
func (b *bed) commits() int64 {
	if l, ok := b.calls.(local); ok {
		return l.Stats().Commits
	}
	return 0
}
