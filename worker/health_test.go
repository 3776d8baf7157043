package worker_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// cutOff is a Backend whose heartbeats fail while it is cut off.
type cutOff struct {
	belay.Backend
	off atomic.Bool
}

func (b *cutOff) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	if b.off.Load() {
		return belay.HeartbeatReply{}, &belay.Error{Code: belay.CodeUnavailable, Message: "cut off"}
	}
	return b.Backend.Heartbeat(ctx, h)
}

// says waits until the answer to a probe has the given status and text. After a minute it fails the
// test.
func says(t *testing.T, h *worker.Health, status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Addr().String()+"/healthz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("want %d %s: %v", status, text, err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		why := answer.Header.Get("Belay-Health")
		if ok := answer.StatusCode == http.StatusOK; ok && why != "" || !ok && strings.TrimSpace(string(body)) != why {
			t.Fatalf("the header says %q, the body %q", why, body)
		}
		if answer.StatusCode == status && strings.Contains(string(body), text) {
			return
		}
	}
}

// Rule: a worker is healthy while it has a session, reaches its server, does not stop, and the check
// of its program succeeds.
func TestAWorkerSaysWhetherItIsHealthy(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	e := engine.New(memory.New(time.Now), engine.Options{Log: quiet})
	t.Cleanup(func() { e.Close() })
	b := &cutOff{Backend: e}
	var full atomic.Bool
	h, err := worker.ListenHealth("127.0.0.1:0", func(context.Context) error {
		if full.Load() {
			return errors.New("the disk is full")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	says(t, h, http.StatusOK, "ok") // no worker uses h yet
	finish := make(chan struct{})
	run := func(workflows string) (stop func(), over chan error) {
		w := worker.New(b, worker.Options{Log: quiet, Health: h, TTL: belay.MinTTL.D()})
		worker.Register(w, workflows, func(context.Context, any) (any, error) {
			<-finish
			return nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		over = make(chan error, 1)
		go func() { over <- w.Run(ctx) }()
		return cancel, over
	}
	stopOne, oneOver := run("one")
	x, err := workflow.Start[any](t.Context(), b, "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	await(t, b, x.ID(), "started")
	says(t, h, http.StatusOK, "ok")

	full.Store(true)
	says(t, h, http.StatusServiceUnavailable, "the disk is full")
	full.Store(false)
	says(t, h, http.StatusOK, "ok")

	b.off.Store(true)
	says(t, h, http.StatusServiceUnavailable, "cannot reach its server")
	b.off.Store(false)
	says(t, h, http.StatusOK, "ok")

	stopTwo, twoOver := run("two")
	says(t, h, http.StatusOK, "ok")
	stopTwo()
	if err := <-twoOver; err != nil {
		t.Error(err)
	}
	says(t, h, http.StatusOK, "ok") // the other worker continues

	all, err := b.Workers(t.Context())
	if err != nil || len(all) < 2 {
		t.Error(all, err)
	}
	for _, s := range all {
		if s.Health != h.Addr().String() {
			t.Errorf("a session names the address %q", s.Health)
		}
	}
	stopOne()
	says(t, h, http.StatusServiceUnavailable, "the worker is stopping")
	close(finish)
	if err := <-oneOver; err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if r, err := http.Get("http://" + h.Addr().String() + "/healthz"); err == nil {
		r.Body.Close()
		t.Error("the port answers after Close")
	}
}
