package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
	"github.com/belaydev/belay/workflow"
)

type op = promise.Op

var errScripted = errors.New("the script says so")

// player carries out scripts.
type player struct {
	w *world
	p *process
	// branch is the prefix of step names in a branch of a script that runs in parallel to another
	// branch.
	branch string
}

// play carries out a script. It ends with a pause that has another length in each run, so that runs
// which end for the same reason do not end at the same instant.
func (p player) play(ctx context.Context, script []op) ([]string, error) {
	defer time.Sleep(p.w.unlike(workflow.IdempotencyKey(ctx), 1))
	return p.ops(ctx, "", script)
}

func (p player) ops(ctx context.Context, prefix string, script []op) ([]string, error) {
	var out []string
	for i, o := range script {
		answer, err := p.op(ctx, fmt.Sprintf("%s%d", prefix, i), o)
		if err != nil {
			return nil, err
		}
		out = append(out, answer...)
	}
	return out, nil
}

func (p player) op(ctx context.Context, name string, o op) ([]string, error) {
	if o.Do != "step" {
		workflow.AddExactCost(ctx, belay.Cost(o.Cost))
	}
	switch o.Do {
	case "step":
		return p.step(ctx, name, o)
	case "sleep":
		err := workflow.Sleep(ctx, name, p.w.unlike(name, o.D()))
		if err == nil {
			p.w.history.sleeping(promise.Entry{
				Kind: "slept", At: p.w.zero.Add(p.w.gate.now()), Execution: workflow.Execution(ctx),
				Token: workflow.Token(ctx), Name: p.branch + name, Least: o.D(),
			})
		}
		return nil, err
	case "signal":
		return p.signal(ctx, name, o)
	case "child":
		return p.child(ctx, name, o)
	case "both":
		return p.both(ctx, name, o)
	case "state":
		return p.state(ctx, name, o)
	case "log":
		return nil, p.write(ctx, name, o)
	case "hog":
		return nil, p.work(ctx, o.D())
	case "stubborn": // the work does not stop when its context ends
		return nil, p.work(context.WithoutCancel(ctx), o.D())
	case "fail":
		if workflow.Attempt(ctx) <= o.N {
			return nil, belay.RetryAfter(errScripted, o.D())
		}
	case "panic":
		if workflow.Attempt(ctx) <= o.N {
			panic("the script says so")
		}
	case "permanent":
		return nil, belay.Permanent(errScripted)
	}
	return nil, nil
}

func (p player) step(ctx context.Context, name string, o op) ([]string, error) {
	var opts []workflow.StepOption
	if o.Target != "" {
		opts = append(opts, workflow.Target(o.Target))
	}
	v, err := workflow.Step(ctx, name, func(ctx context.Context) (string, error) {
		p.w.history.step(carried{execution: workflow.Execution(ctx), token: workflow.Token(ctx),
			key: workflow.IdempotencyKey(ctx), target: o.Target, stopped: p.p.stuckAt.Load() >= 0})
		err := p.work(ctx, o.D())
		workflow.AddExactCost(ctx, belay.Cost(o.Cost))
		if err == nil && workflow.Attempt(ctx) <= o.N {
			err = errScripted
		}
		return "did " + name, err
	}, opts...)
	return []string{v}, err
}

// work waits for a duration, to simulate work of that duration.
func (p player) work(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(p.w.unlike(workflow.IdempotencyKey(ctx), d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p player) signal(ctx context.Context, name string, o op) ([]string, error) {
	var opts []workflow.WaitOption
	if o.Ms > 0 {
		opts = append(opts, workflow.Timeout(p.w.unlike(name, o.D())))
	}
	v, err := workflow.WaitSignal[string](ctx, signalName, append(opts, workflow.Key(name))...)
	if errors.Is(err, workflow.ErrTimeout) {
		return []string{promise.TimedOut}, nil
	}
	return []string{v}, err
}

// signalName is the name of the signal for which scripts wait.
const signalName = "go"

func (p player) child(ctx context.Context, name string, o op) ([]string, error) {
	opts := []workflow.ChildOption{}
	if o.N == 1 {
		opts = append(opts, workflow.With(belay.WithPolicy(belay.Policy{
			MaxAttempts: 2, BackoffBase: belay.Duration(100 * time.Millisecond),
		})))
	}
	v, err := workflow.Child[[]string](ctx, name, "play", o.Sub, opts...)
	var ended *workflow.EndedError
	if errors.As(err, &ended) {
		return []string{promise.ChildEnded}, nil
	}
	return append([]string{promise.ChildDone}, v...), err
}

func (p player) both(ctx context.Context, name string, o op) ([]string, error) {
	// The branches begin at different instants, because otherwise the scheduler of goroutines would
	// decide which branch is first.
	begin := func(branch string, after time.Duration, o []op) func(context.Context) ([]string, error) {
		return func(ctx context.Context) ([]string, error) {
			if err := p.work(ctx, after); err != nil {
				return nil, err
			}
			return player{p.w, p.p, branch + "/"}.ops(ctx, "", o)
		}
	}
	f := workflow.Go(ctx, name+"a", begin(name+"a", 1, o.Sub))
	g := workflow.Go(ctx, name+"b", begin(name+"b", 2, o.Other))
	a, err := f.Wait(ctx)
	b, err2 := g.Wait(ctx)
	return append(a, b...), errors.Join(err, err2)
}

// write writes a line to the execution's log, which all runs of the execution continue.
func (p player) write(ctx context.Context, name string, o op) error {
	log := workflow.Output(ctx, logName)
	_, err := fmt.Fprintf(log, "%s by %d\n", name, workflow.Token(ctx))
	if err = errors.Join(err, log.Close()); belay.CodeOf(err) == belay.CodeConflict {
		p.w.history.refused(carried{execution: workflow.Execution(ctx), token: workflow.Token(ctx), key: err.Error()})
	}
	return errors.Join(err, p.work(ctx, o.D()))
}

// logName is the name of the log to which scripts write.
const logName = "out"

// state increments a number in the execution's free-form state, beginning with the number of the
// last run.
func (p player) state(ctx context.Context, name string, o op) ([]string, error) {
	n, _, err := workflow.State[int](ctx)
	for ; err == nil && n < o.N; n++ {
		if err = p.work(ctx, o.D()); err == nil {
			err = workflow.Checkpoint(ctx, n+1)
		}
	}
	return []string{fmt.Sprint(name, " counted to ", n)}, err
}

// aim makes some steps of a script call targets. Most of these steps fail at first, so that they open
// the circuit breaker of the target.
func aim(r *rand.Rand, script []op) {
	for i := range script {
		o := &script[i]
		if o.Do == "step" && r.IntN(2) == 0 {
			o.Target, o.N = fmt.Sprint("t", r.IntN(2)), r.IntN(4)
		}
		aim(r, o.Sub)
		aim(r, o.Other)
	}
}

// writeScript makes a random script.
func writeScript(r *rand.Rand, depth int) []op {
	var script []op
	for range 1 + r.IntN(4) {
		o := writeOp(r, depth)
		if (o.Do == "state" || o.Do == "log") && slices.ContainsFunc(script, func(other op) bool {
			return other.Do == o.Do
		}) {
			// a script has no second op of this kind: an execution has one state, and opens its log
			// once
			o = op{Do: "step", Ms: o.Ms}
		}
		script = append(script, o)
	}
	return script
}

func writeOp(r *rand.Rand, depth int) op {
	ms := func(most int) int { return 1 + r.IntN(most) }
	switch x := r.IntN(100); {
	case x < 34:
		return op{Do: "step", Ms: ms(300)}
	case x < 44:
		return op{Do: "sleep", Ms: ms(2500)}
	case x < 56:
		o := op{Do: "signal"}
		if r.IntN(2) == 0 {
			o.Ms = ms(3000)
		}
		return o
	case x < 64 && depth > 0:
		return op{Do: "child", N: r.IntN(2), Sub: writeScript(r, depth-1)}
	case x < 70 && depth > 0:
		return op{Do: "both", Sub: writeScript(r, 0), Other: writeScript(r, 0)}
	case x < 76 && depth > 0:
		return op{Do: "state", Ms: ms(200), N: 1 + r.IntN(5)}
	case x < 79 && depth > 0:
		return op{Do: "log", Ms: ms(500)}
	case x < 82:
		return op{Do: "hog", Ms: ms(1500)}
	case x < 85:
		return op{Do: "stubborn", Ms: ms(1200)}
	case x < 92:
		return op{Do: "fail", N: 1 + r.IntN(3), Ms: r.IntN(2) * ms(800)}
	case x < 95:
		return op{Do: "panic", N: 1 + r.IntN(2)}
	case x < 97:
		return op{Do: "permanent"}
	default:
		return op{Do: "step", Ms: 1}
	}
}
