package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/testkit/promise"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Environment variables of the role worker.
const (
	urlEnv    = "CHAOS_URL"
	ledgerEnv = "CHAOS_LEDGER"
	nameEnv   = "CHAOS_NAME"
	farEnv    = "CHAOS_FAR"
)

// The TTLs of the workers' sessions. The TTL of near workers is long, so that only a proven death
// can end their sessions quickly.
const (
	farTTL  = 3 * time.Second
	farBeat = 500 * time.Millisecond
	nearTTL = 10 * time.Second
)

// concurrency is the number of slots of one worker.
const concurrency = 64

// workerProcess is a worker that runs scripts and records the results of its calls.
func workerProcess() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	book, err := openLedger(os.Getenv(ledgerEnv))
	if err != nil {
		return err
	}
	b, err := client.Dial(ctx, os.Getenv(urlEnv), client.Lazy(), client.Logger(quiet))
	if err != nil {
		return err
	}
	slot, _, _ := strings.Cut(os.Getenv(nameEnv), ".")
	o := worker.Options{
		Labels: map[string]string{slotLabel: slot},
		Name:   os.Getenv(nameEnv), Concurrency: concurrency, TTL: nearTTL, Grace: 300 * time.Millisecond, Log: quiet,
		Linger: 300 * time.Millisecond, Broker: os.Getenv(brokerEnv),
	}
	if o.Broker != "" {
		o.Heartbeat = beat
	}
	if os.Getenv(farEnv) != "" {
		o.TTL, o.Heartbeat = farTTL, farBeat
		o.Process = belay.Process{Host: "elsewhere.test", PID: os.Getpid()}
	}
	w := worker.New(&recorder{Backend: b, who: o.Name, book: book}, o)
	p := player{o.Name, book, ""}
	worker.Register(w, "play", p.play)
	worker.Register(w, useWorkflow, p.use)
	worker.Register(w, swapWorkflow, p.swap)
	return errors.Join(w.Run(ctx), b.Close(), book.close())
}

// player runs scripts, and records their effects.
type player struct {
	who    string
	book   notebook
	branch string // the prefix of step names in the branch of the script
}

func (p player) play(ctx context.Context, script []op) ([]string, error) {
	out := []string{}
	for i, o := range script {
		answer, err := p.op(ctx, fmt.Sprint(i), o)
		if err != nil {
			return nil, err
		}
		out = append(out, answer...)
	}
	return out, nil
}

var errScripted = errors.New("the script says so")

func (p player) op(ctx context.Context, name string, o op) ([]string, error) {
	if o.Do != "step" {
		workflow.AddExactCost(ctx, belay.Cost(o.Cost))
	}
	switch o.Do {
	case "step":
		v, err := workflow.Step(ctx, name, func(ctx context.Context) (string, error) {
			at := time.Now() // the step's effect begins here, before all other work
			p.book.note(entry{
				Kind: "effect", Who: p.who, At: at, Execution: workflow.Execution(ctx), Token: workflow.Token(ctx),
				Name: workflow.IdempotencyKey(ctx),
			})
			workflow.AddExactCost(ctx, belay.Cost(o.Cost))
			return "did " + name, work(ctx, o.D())
		})
		return []string{v}, err
	case "large":
		v, err := workflow.Step(ctx, name, func(context.Context) (string, error) {
			return strings.Repeat("z", o.N), nil
		})
		return []string{fmt.Sprint("large ", len(v))}, err
	case "poison":
		if err := work(ctx, o.D()); err != nil {
			return nil, err
		}
		p.book.note(entry{
			Kind: "poison", Who: p.who, At: time.Now(), Execution: workflow.Execution(ctx), Token: workflow.Token(ctx),
			Number: int64(os.Getpid()),
		})
		return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "sleep":
		err := workflow.Sleep(ctx, name, o.D())
		if err == nil {
			p.book.note(entry{Kind: "slept", Who: p.who, At: time.Now(), Execution: workflow.Execution(ctx),
				Token: workflow.Token(ctx), Name: p.branch + name, Least: o.D()})
		}
		return nil, err
	case "signal":
		v, err := workflow.WaitSignal[string](ctx, signalName, workflow.Key(name))
		return []string{v}, err
	case "child":
		return p.child(ctx, name, o)
	case "both":
		return p.both(ctx, name, o)
	case "state":
		return p.count(ctx, name, o)
	case "fail":
		if workflow.Attempt(ctx) <= o.N {
			return nil, errScripted
		}
	case "panic":
		if workflow.Attempt(ctx) <= o.N {
			panic(errScripted)
		}
	case "permanent":
		return nil, belay.Permanent(errScripted)
	}
	return nil, nil
}

// signalName is the name of the only signal that scripts wait for.
const signalName = "go"

func (p player) child(ctx context.Context, name string, o op) ([]string, error) {
	v, err := workflow.Child[[]string](ctx, name, "play", o.Sub, workflow.With(belay.WithPolicy(terms)))
	var ended *workflow.EndedError
	if errors.As(err, &ended) {
		return []string{promise.ChildEnded}, nil
	}
	return append([]string{promise.ChildDone}, v...), err
}

// terms is the policy of every script. Its retries come so soon that a run contains many of them.
var terms = belay.Policy{
	MaxAttempts: 3, BackoffBase: belay.Duration(200 * time.Millisecond), CancelGrace: belay.Duration(2 * time.Second),
	MaxLosses: 8,
}

func (p player) both(ctx context.Context, name string, o op) ([]string, error) {
	begin := func(branch string, o []op) *workflow.Future[[]string] {
		return workflow.Go(ctx, branch, func(ctx context.Context) ([]string, error) {
			return player{p.who, p.book, branch + "/"}.play(ctx, o)
		})
	}
	f, g := begin(name+"a", o.Sub), begin(name+"b", o.Other)
	a, err := f.Wait(ctx)
	b, err2 := g.Wait(ctx)
	return append(a, b...), errors.Join(err, err2)
}

// count increments a number in the execution's free-form state, beginning with the number that the
// last run saved.
func (p player) count(ctx context.Context, name string, o op) ([]string, error) {
	n, _, err := workflow.State[int](ctx)
	for ; err == nil && n < o.N; n++ {
		if err = work(ctx, o.D()); err == nil {
			err = workflow.Checkpoint(ctx, n+1)
		}
	}
	return []string{fmt.Sprint(name, " counted to ", n)}, err
}

// work waits for a duration, as if it worked.
func work(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
