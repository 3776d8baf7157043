package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// site is a server on a fresh data directory, on loopback.
type site struct {
	*embedded.Backend
	server *http.Server
	url    string
}

func openSite(ctx context.Context, dir string) (*site, error) {
	b, err := embedded.Open(ctx, "sqlite:"+dir)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: httpapi.New(b, httpapi.Options{Log: slog.Default()}), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	return &site{b, s, "http://" + l.Addr().String()}, nil
}

func (s *site) close() error {
	_ = s.server.Close()
	return s.Backend.Close()
}

// measureRemote is measureExecutions with a worker that speaks to the server over
// HTTP. Submitters do so too if remote is set; otherwise they are in the server's
// process.
func measureRemote(ctx context.Context, dir string, n int, remote bool) (sample, error) {
	s, err := openSite(ctx, dir)
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = s.close() }()
	c, err := client.Dial(ctx, s.url)
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = c.Close() }()
	w := worker.New(c, worker.Options{Concurrency: inFlight})
	worker.Register(w, "w", func(context.Context, payload) (string, error) { return "", nil })
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- w.Run(working) }()
	defer func() { stop(); <-worked }()

	var b belay.Backend = s.Backend
	if remote {
		submitter, err := client.Dial(ctx, s.url)
		if err != nil {
			return sample{}, err
		}
		defer func() { _ = submitter.Close() }()
		b = submitter
	}
	begin, cpu := time.Now(), cpuTime()
	if err := workOff(ctx, b, n); err != nil {
		return sample{}, err
	}
	return sample{
		rate: float64(n) / time.Since(begin).Seconds(), cpu: (cpuTime() - cpu).Seconds() * 1e6 / float64(n),
		held: fmt.Sprint(n, " executions"),
	}, nil
}

// workOff submits n executions with at most inFlight not ended.
func workOff(ctx context.Context, b belay.Backend, n int) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, inFlight)
	for range inFlight {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				h, err := workflow.Start[string](ctx, b, "w", input)
				if err == nil {
					_, err = h.Result(ctx)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// measureHTTP prints what is left of the rate in this process with a worker, and
// with submitters too, on the other side of HTTP.
func measureHTTP(ctx context.Context, fresh func() string, n, runs int) error {
	for range runs {
		here, err := measureExecutions(ctx, fresh(), n)
		if err != nil {
			return err
		}
		fmt.Printf("in this process        %7.0f /s  %4.0f µs of processor time each\n", here.rate, here.cpu)
		for _, remote := range []bool{false, true} {
			there, err := measureRemote(ctx, fresh(), n, remote)
			if err != nil {
				return err
			}
			who := "worker"
			if remote {
				who = "all   "
			}
			fmt.Printf("%s over HTTP       %7.0f /s  %4.0f µs of processor time each   %.2f of it\n", who, there.rate, there.cpu, there.rate/here.rate)
		}
	}
	return nil
}
