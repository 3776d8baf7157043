// Command agent-pipeline writes a report with a language model: it plans, researches all topics
// concurrently, writes a draft, and improves the draft until a review accepts it.
//
//	go run ./examples/agent-pipeline "the history of climbing"
//
// Each call to the model is a step. So if the program is killed and started again, a finished call
// is not repeated and costs nothing again. The file calls.txt lists the calls, and belay get shows
// their cost. The model is simulated and needs no account; replace the function ask to use a real
// model.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// drafts is the maximum number of drafts.
const drafts = 3

// report is the workflow. Its input is the subject of the report.
func report(ctx context.Context, subject string) (string, error) {
	plan, err := call(ctx, "plan", "name three topics of "+subject, 0)
	if err != nil {
		return "", err
	}
	notes, err := research(ctx, strings.Split(plan, ", "))
	if err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		draft, err := call(ctx, "draft", fmt.Sprintf("write about %s, draft %d, from: %s", subject, n, notes), n)
		if err != nil {
			return "", err
		}
		verdict, err := call(ctx, "review", "judge: "+draft, n)
		if err != nil {
			return "", err
		}
		if verdict == "accepted" || n == drafts {
			return draft, nil
		}
	}
}

// research calls the model for all topics concurrently, with a branch for each topic.
func research(ctx context.Context, topics []string) (string, error) {
	var branches []*workflow.Future[string]
	for _, topic := range topics {
		branches = append(branches, workflow.Go(ctx, "topic", func(ctx context.Context) (string, error) {
			return call(ctx, "research", "what is known of "+topic, 0)
		}, workflow.Key(topic)))
	}
	var notes []string
	for _, b := range branches {
		note, err := b.Wait(ctx)
		if err != nil {
			return "", err
		}
		notes = append(notes, note)
	}
	return strings.Join(notes, "; "), nil
}

// call calls the model in a step, with up to three tries, and adds the cost of the answer to the
// execution.
func call(ctx context.Context, name, prompt string, turn int) (string, error) {
	return workflow.Step(ctx, name, func(ctx context.Context) (string, error) {
		answer, tokens, err := ask(ctx, name, prompt)
		if err != nil {
			return "", err
		}
		workflow.AddCost(ctx, tokens)
		return answer, nil
	}, workflow.Key(turn), workflow.Retry(3, time.Second))
}

// ask simulates a language model. After a moment it returns an answer, always the same for the same
// prompt.
func ask(ctx context.Context, role, prompt string) (answer string, tokens int64, err error) {
	f, err := os.OpenFile("calls.txt", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", 0, err
	}
	_, err = fmt.Fprintf(f, "%s: %.40s\n", role, prompt)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", 0, err
	}
	select {
	case <-time.After(300 * time.Millisecond):
	case <-ctx.Done():
		return "", 0, context.Cause(ctx)
	}
	switch role {
	case "plan":
		answer = "beginnings, people, tools"
	case "review":
		answer = "too short"
		if strings.Contains(prompt, "draft 2") {
			answer = "accepted"
		}
	default:
		answer = "[" + prompt + "]"
	}
	return answer, int64(len(prompt) + len(answer)), nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: agent-pipeline SUBJECT")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // no deferred call is needed any more
	}
}

// run runs a worker until the report is written, or ctx ends.
func run(ctx context.Context, subject string) error {
	quiet := slog.New(slog.DiscardHandler)
	b, err := embedded.Open(ctx, "sqlite:./belay-data", embedded.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "report", report)
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(working) }()

	h, err := workflow.Start[string](ctx, b, "report", subject, belay.IdempotencyKey(subject))
	var text string
	if err == nil {
		text, err = h.Result(ctx)
	}
	if err == nil {
		fmt.Println(text)
	}
	stop()
	return errors.Join(err, <-done, b.Close())
}
