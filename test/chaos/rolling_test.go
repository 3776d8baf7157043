package chaos

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// takenBy is the longest time that an execution may wait for another worker after a worker has released it. The aim
// is a tenth of a second; the bound is so large that a busy machine does not exceed it.
const takenBy = 2 * time.Second

// Rule: if all workers are replaced one by one under load, with RabbitMQ between servers and workers, no execution
// fails or is lost, no attempt is counted, and another worker soon takes what a worker that ends has released.
func TestRollingReplacement(t *testing.T) {
	w := emptyWorld(t, onSQLite, *seedFlag)
	m := &vandalOfMessages{world: w, mq: mqtest.Start(t, mqtest.Options{}), r: dice(w.seed, "rolling")}
	m.vhost = m.mq.VHost(t)
	w.more = []string{brokerEnv + "=" + m.mq.URL(m.vhost)}
	w.startWithMessages()
	ctx := t.Context()
	w.await("the workers have mailboxes", func() bool { return len(m.mailboxes(ctx)) == workers })
	loading, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.loadShort(loading, 60)
	}()
	began := time.Now()
	_ = pause(ctx, 500*time.Millisecond)
	for _, s := range w.workers {
		m.replace(s)
	}
	_ = pause(ctx, 500*time.Millisecond)
	took := time.Since(began)
	stop()
	<-ended
	r := &record{Store: onSQLite, Servers: 1, Seed: w.seed, Began: began, Open: w.settle(ctx), Settled: time.Now()}
	for _, o := range r.Open {
		t.Error(o)
	}
	w.stopWorkers()
	if err := w.readTales(ctx, r); err != nil {
		t.Fatal(err)
	}
	w.end()
	judgeReplacement(t, newBook(r), took)
}

// loadShort submits executions, of which most end within a worker's grace and some do not, until ctx ends.
func (w *world) loadShort(ctx context.Context, rate int) {
	c := &crowd{world: w}
	every := time.NewTicker(time.Second / time.Duration(rate))
	defer every.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		ms := 5 + n%20
		if n%10 == 0 {
			ms = 1500
		}
		if got, err := w.servers[0].client.Submit(ctx, c.root([]op{{Do: "step", Ms: ms}})); err != nil {
			if ctx.Err() == nil {
				w.t.Error(err)
			}
		} else if got[0].Err != nil {
			w.t.Error(got[0].Err)
		}
	}
}

// replace starts the next process of a worker, and ends the previous process when messages reach the next.
func (m *vandalOfMessages) replace(s *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.proc
	if err := s.start(); err != nil {
		m.t.Fatal(err)
	}
	name := fmt.Sprintf("%s.%d", s.name, s.life)
	m.await(name+" has a mailbox", func() bool {
		all, err := m.servers[0].client.Workers(m.t.Context())
		for _, w := range all {
			if err == nil && w.Name == name && w.Mailbox != "" {
				return true
			}
		}
		return false
	})
	old.signal(syscall.SIGTERM)
	old.end(30 * time.Second)
	if code := old.cmd.ProcessState.ExitCode(); code != 0 {
		m.t.Errorf("%s ended with %s", s.name, old.cmd.ProcessState)
	}
}

func judgeReplacement(t *testing.T, b *book, took time.Duration) {
	t.Helper()
	var gaps, picked []time.Duration
	messages, claims := 0, 0
	for _, s := range b.stories {
		if x := &s.Execution; x.State != belay.Succeeded || x.Attempt != 1 || x.Losses != 0 {
			t.Errorf("%s is %s in attempt %d with %d losses", x.ID, x.State, x.Attempt, x.Losses)
		}
		for i, a := range s.Runs {
			if a.Started == nil {
				continue
			}
			if claims++; a.Kind == "scheduled" {
				claims--
				messages++
			}
			if i == 0 {
				picked = append(picked, a.Started.At.Sub(s.Events[0].At))
			}
		}
		for i, a := range s.Runs {
			if a.End == nil || a.End.Kind != "released" || i+1 == len(s.Runs) {
				continue
			}
			next := s.Runs[i+1]
			if next.Started == nil {
				continue // released again before it was accepted, which the next run measures
			}
			gap := next.Started.At.Sub(a.End.At)
			if gaps = append(gaps, gap); gap > takenBy {
				t.Errorf("%s was released by %s at %s and taken %s later", s.ID, a.Worker, a.End.At.Format(clock), gap)
			}
		}
	}
	fmt.Fprintf(os.Stdout, "all workers replaced in %s: %d executions, %d runs by messages and %d by claims\n",
		took.Round(10*time.Millisecond), len(b.stories), messages, claims)
	fmt.Fprintf(os.Stdout, "released to accepted: %s\nsubmitted to accepted: %s\n", promise.Quantiles(gaps),
		promise.Quantiles(picked))
	if len(gaps) == 0 {
		t.Error("no worker released an execution")
	}
	if messages < claims {
		t.Errorf("%d of %d runs came by messages", messages, messages+claims)
	}
}
