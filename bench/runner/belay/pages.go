package belay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/client"
)

// The load of the measure pages: how many readers request pages at the same time in the second pass, and how many
// executions are submitted in a second meanwhile.
const (
	pageReaders = 4
	pageLoad    = 100
)

// webPage is a page of the web UI to request. A right answer has the status 200 and contains has.
type webPage struct{ name, path, has string }

// pages measures how long the pages of the web UI take in a store with r.N ended executions, a tenth as many pending
// ones, and r.Workers workers: first one request at a time on a server that otherwise rests, and then from several
// readers while executions are submitted and run.
func pages(ctx context.Context, r trial.Request) (s trial.Sample, err error) {
	begin := time.Now()
	made, err := fillStore(ctx, r)
	if err != nil {
		return s, fmt.Errorf("fill the store: %w", err)
	}
	filled := time.Since(begin)
	server, err := start(ctx, r)
	if err != nil {
		return s, err
	}
	f, err := startFleet(ctx, server.url, r)
	if err != nil {
		return s, errors.Join(fmt.Errorf("start the workers: %w", err), f.stop(), server.stop())
	}
	all, err := f.pages(ctx, made)
	if err == nil {
		s, err = measurePages(ctx, r, server, all, f)
	}
	if err == nil {
		err = keep(ctx, server.url, all)
	}
	if err = errors.Join(err, f.stop(), server.stop()); err != nil {
		return s, err
	}
	s.Values["fill_s"], s.Values["executions"] = filled.Seconds(), float64(made.executions)
	s.Values["dead_letters"] = float64(made.letters)
	return s, nil
}

// measurePages requests all pages, first alone and then beside other readers and a load.
func measurePages(ctx context.Context, r trial.Request, server *server, all []webPage, f *fleet) (s trial.Sample,
	err error) {
	alone := &readers{url: server.url, n: 1, times: r.Requests, used: func() time.Duration {
		return trial.ServerCPU(r, server.PID())
	}}
	if err := alone.read(ctx, all); err != nil {
		return s, err
	}
	loaded, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := trial.Pace(loaded, pageLoad, time.Hour, f.submit)
		ended <- err
	}()
	beside := &readers{url: server.url, n: pageReaders, times: r.Requests}
	err = beside.read(ctx, all)
	stop()
	if lerr := <-ended; err == nil && !errors.Is(lerr, context.Canceled) {
		err = lerr
	}
	if err != nil {
		return s, err
	}
	s.Values = make(map[string]float64)
	for _, p := range all {
		part := trial.Part{
			Name: p.name, Alone: trial.TimesOf(alone.took[p.name]), Beside: trial.TimesOf(beside.took[p.name]),
			Bytes: alone.bytes[p.name], CPU: alone.cpu[p.name].Seconds() * 1000 / float64(r.Requests+1),
		}
		part.Failed = alone.failed[p.name] + beside.failed[p.name]
		s.Parts = append(s.Parts, part)
		s.Values["failed"] += float64(part.Failed)
		s.Values["slowest_p95_ms"] = max(s.Values["slowest_p95_ms"], part.Alone.P95)
		s.Values["slowest_p95_beside_ms"] = max(s.Values["slowest_p95_beside_ms"], part.Beside.P95)
	}
	return s, nil
}

// readers request pages at the same time.
type readers struct {
	url   string
	n     int                  // how many
	times int                  // how often they request each page
	used  func() time.Duration // the processor time of the servers; nil if it is not measured

	mu     sync.Mutex
	took   map[string][]time.Duration
	bytes  map[string]int
	cpu    map[string]time.Duration
	failed map[string]int
}

// read requests each page d.times times, the pages in turn, after one request of each that does not count.
func (d *readers) read(ctx context.Context, all []webPage) error {
	d.took, d.bytes = make(map[string][]time.Duration), make(map[string]int)
	d.cpu, d.failed = make(map[string]time.Duration), make(map[string]int)
	work := make(chan webPage)
	var wg sync.WaitGroup
	for range d.n {
		wg.Go(func() {
			for p := range work {
				if err := d.request(ctx, p); err != nil {
					d.note(fmt.Errorf("page %s (%s): %w", p.name, p.path, err), p)
				}
			}
		})
	}
	for range d.times + 1 {
		for _, p := range all {
			select {
			case work <- p:
			case <-ctx.Done():
			}
		}
	}
	close(work)
	wg.Wait()
	for name := range d.took {
		d.took[name] = d.took[name][1:]
	}
	return context.Cause(ctx)
}

// note counts a request that got no right answer, and prints the first of each page.
func (d *readers) note(err error, p webPage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed[p.name]++; d.failed[p.name] == 1 {
		fmt.Fprintln(os.Stderr, err)
	}
}

// request requests a page and checks the answer.
func (d *readers) request(ctx context.Context, p webPage) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+p.path, nil)
	if err != nil {
		return err
	}
	var used time.Duration
	if d.used != nil {
		used = d.used()
	}
	begin := time.Now()
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(a.Body)
	took := time.Since(begin)
	if err := errors.Join(err, a.Body.Close()); err != nil {
		return err
	}
	if d.used != nil {
		used = d.used() - used
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cpu[p.name] += used
	d.took[p.name] = append(d.took[p.name], took)
	d.bytes[p.name] = len(body)
	if a.StatusCode != http.StatusOK || !strings.Contains(string(body), p.has) {
		return fmt.Errorf("the answer has the status %s and %d bytes without %q", a.Status, len(body), p.has)
	}
	return nil
}

// fleet is everything in the trial beside the server: clients and workers.
type fleet struct {
	calls   belay.Backend
	clients []belay.Backend
	crews   []*crew
}

func (f *fleet) dial(ctx context.Context, url string) (belay.Backend, error) {
	b, err := client.Dial(ctx, url, client.Logger(quiet()))
	if err == nil {
		f.clients = append(f.clients, b)
	}
	return b, err
}

func (f *fleet) stop() (err error) {
	for _, c := range f.crews {
		c.stop()
	}
	for _, c := range f.crews {
		err = errors.Join(err, <-c.ended)
	}
	for _, c := range slices.Backward(f.clients) {
		err = errors.Join(err, c.Close())
	}
	return err
}

// submit submits one execution of the load.
func (f *fleet) submit(ctx context.Context, i int) error {
	out, err := f.calls.Submit(ctx, belay.Submission{Workflow: "noop", Queue: specialQueue, Input: input(i)})
	if err == nil {
		err = out[0].Err
	}
	if ctx.Err() != nil {
		return context.Canceled
	}
	return err
}

// keep writes the addresses of the pages to the file that BELAY_BENCH_PAGES names, and waits until this file is
// removed, so that a person can look at the server. Without the variable it does nothing.
func keep(ctx context.Context, url string, all []webPage) error {
	path := os.Getenv("BELAY_BENCH_PAGES")
	if path == "" {
		return nil
	}
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintf(&b, "%s\t%s%s\n", p.name, url, p.path)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
