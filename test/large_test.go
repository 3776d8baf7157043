package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Rule: a run continues although its saved data are far larger than one reply: its worker reads the
// data in pages, and the server never has all of them in memory. No execution keeps an owner that
// does not run it.
func TestARunContinuesFromHundredsOfMegabytes(t *testing.T) {
	if !*long {
		t.Skip("takes a minute; the suite of the SDK has a smaller one")
	}
	const steps, letters = 260, 4200
	p := newPlace(t)
	x, a := p.serve()
	b, err := client.Dial(t.Context(), a.url, client.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	begun, runs := make(map[int]int), 0
	w := worker.New(b, worker.Options{Name: "reader", Concurrency: 1, Log: quiet})
	worker.Register(w, "read", func(ctx context.Context, _ any) (int, error) {
		sum := 0
		for i := range steps {
			s, err := workflow.Step(ctx, "step", func(context.Context) (string, error) {
				begun[i]++
				return strings.Repeat("x", belay.MaxPayload-2), nil
			}, workflow.Key(i))
			if err != nil {
				return 0, err
			}
			sum += len(s)
		}
		if runs++; runs == 1 {
			return 0, errors.New("again")
		}
		for i := range letters {
			s, err := workflow.WaitSignal[string](ctx, "letter", workflow.Key(i))
			if err != nil {
				return 0, err
			}
			if !strings.HasPrefix(s, fmt.Sprint(i, " ")) {
				return 0, belay.Permanent(fmt.Errorf("signal %d is %.10q", i, s))
			}
			sum += len(s)
		}
		return sum, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	h, err := workflow.Start[int](ctx, b, "read", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := steps * (belay.MaxPayload - 2)
	for i := range letters {
		s := fmt.Sprintf("%d %s", i, strings.Repeat("y", belay.MaxSignal-10))
		want += len(s)
		if err := h.Signal(ctx, "letter", s); err != nil {
			t.Fatal(err)
		}
	}
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(working) }()
	got, err := h.Result(ctx)
	if err != nil || got != want || runs != 2 || len(begun) != steps || begun[0] != 1 {
		t.Errorf("%d bytes of %d in %d runs, %d steps begun: %v", got, want, runs, len(begun), err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("the server used %d MiB at most", x.resident()>>20)
}
