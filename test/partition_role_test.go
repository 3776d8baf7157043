package test

import (
	"context"
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

// Environment variables of counterProcess.
const (
	urlEnv    = "BLACKBOX_URL"
	ledgerEnv = "BLACKBOX_LEDGER"
	nameEnv   = "BLACKBOX_NAME"
)

const (
	farTTL  = 3 * time.Second
	farBeat = 500 * time.Millisecond
)

// counterProcess is a worker that uses a server over HTTP. It reports another machine as its host,
// so that the engine can notice its death only when its session expires. Its only workflow counts,
// saves each number as a step, and writes each number whose step was acknowledged into a ledger.
func counterProcess() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := client.Dial(ctx, os.Getenv(urlEnv), client.Lazy(), client.Logger(quiet))
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{
		Name: os.Getenv(nameEnv), Concurrency: 1, TTL: farTTL, Heartbeat: farBeat, Grace: -1, Log: quiet,
		Process: belay.Process{Host: "elsewhere.test", PID: os.Getpid()},
	})
	worker.Register(w, "count", countUp)
	return errors.Join(w.Run(ctx), b.Close())
}

// countUp saves one number after the other as a step, until a file appears. The result of a step is
// the token under which it was saved.
func countUp(ctx context.Context, _ any) (int, error) {
	ledger, err := os.OpenFile(os.Getenv(ledgerEnv), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { _ = ledger.Close() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		token, err := workflow.Step(ctx, "n", func(ctx context.Context) (belay.Token, error) {
			return workflow.Token(ctx), nil
		}, workflow.Key(n))
		if err != nil {
			return 0, err
		}
		fmt.Fprintln(ledger, n, int64(token))
		if token != workflow.Token(ctx) {
			continue // an earlier owner saved this number
		}
		if _, err := os.Stat(os.Getenv(releaseEnv)); err == nil {
			return n, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// acked is a number whose step the server acknowledged to a worker.
type acked struct {
	n     int
	token belay.Token
}

// readLedger reads the complete lines of a ledger.
func readLedger(t *testing.T, file string) []acked {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []acked
	for line := range strings.Lines(string(data)) {
		n, token, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var a acked
		a.n, err = strconv.Atoi(n)
		tok, err2 := strconv.ParseInt(token, 10, 64)
		if !ok || !strings.HasSuffix(line, "\n") || errors.Join(err, err2) != nil {
			break // a kill of the worker cut the line off
		}
		a.token = belay.Token(tok)
		all = append(all, a)
	}
	return all
}
