package test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/testkit/faultproxy"
	"github.com/belaydev/belay/workflow"
)

// divided is a real server and two workers: the far worker is behind a proxy that causes faults,
// and the near worker takes over when the far worker loses the execution. The far worker owns the
// execution when the faults begin.
type divided struct {
	*place
	server    *started
	api       api
	direct    *client.Client
	proxy     *faultproxy.Proxy
	id        belay.ExecutionID
	far, near *started
	// seen returns, after the watch has ended, the events that a watcher behind the proxy received
	seen func() []int64
}

func newDivided(t *testing.T) *divided {
	t.Helper()
	d := &divided{place: newPlace(t)}
	d.server, d.api = d.serve("--insecure-no-auth")
	direct, err := client.Dial(t.Context(), d.api.url, client.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Close() })
	d.direct = direct
	d.proxy, err = faultproxy.Listen(strings.TrimPrefix(d.api.url, "http://"), *seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.proxy.Close() })
	return d
}

func (d *divided) worker(name, url string) *started {
	return d.start(d.role("counter", nameEnv+"="+name, urlEnv+"="+url, ledgerEnv+"="+d.path(name),
		releaseEnv+"="+d.path("release")))
}

// session waits until a worker has a session and has sent a heartbeat in it.
func (d *divided) session(name string) {
	d.t.Helper()
	until(d.t, "the "+name+" worker is there", func() bool {
		all, err := d.direct.Workers(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		for _, w := range all {
			if w.Name == name && w.State == belay.WorkerOpen && w.HeartbeatAt.After(w.OpenedAt) {
				return true
			}
		}
		return false
	})
}

// submit submits the execution and starts a watch on it.
func (d *divided) submit() {
	d.t.Helper()
	h, err := workflow.Start[int](d.t.Context(), d.direct, "count", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.id = h.ID()
	d.seen = d.watch()
}

// begin starts both workers: the far worker works, and the near worker waits.
func (d *divided) begin() {
	d.t.Helper()
	d.submit()
	d.far = d.worker("far", "http://"+d.proxy.Addr())
	d.goesOn()
	d.near = d.worker("near", d.api.url)
	d.session("near")
}

// watch follows the execution through the proxy until it ends, through all faults of the proxy.
func (d *divided) watch() func() []int64 {
	c, err := client.Dial(d.t.Context(), "http://"+d.proxy.Addr(), client.Lazy(), client.Logger(quiet))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(d.t.Context())
	var seqs []int64
	var watching sync.WaitGroup
	watching.Go(func() {
		after, final := int64(0), false
		for !final && ctx.Err() == nil {
			events, _ := c.Events(ctx, belay.EventQuery{Execution: d.id, After: after, Wait: 2 * time.Second})
			for _, ev := range events {
				seqs, after, final = append(seqs, ev.Seq), ev.Seq, ev.Final
			}
		}
	})
	end := sync.OnceFunc(func() {
		over := time.AfterFunc(patience, stop)
		watching.Wait()
		over.Stop()
		stop()
		_ = c.Close()
	})
	d.t.Cleanup(func() { stop(); end() })
	return func() []int64 { end(); return seqs }
}

func (d *divided) now() belay.Execution {
	d.t.Helper()
	x, err := d.direct.Execution(d.t.Context(), d.id)
	if err != nil {
		d.t.Fatal(err)
	}
	return x
}

// goesOn waits until either worker has saved more steps.
func (d *divided) goesOn() {
	d.t.Helper()
	var from int64
	until(d.t, "the execution continues", func() bool {
		x := d.now()
		if from == 0 {
			from = x.Seq
		}
		return x.State == belay.Running && x.Seq > from+20
	})
}

// lost waits until the store records the loss of the far worker. The engine must notice the loss by
// itself, not at a later write.
func (d *divided) lost() {
	d.t.Helper()
	until(d.t, "the loss is noticed", func() bool { return count(d.past(), "lost") > 0 })
}

func (d *divided) past() []belay.Event {
	d.t.Helper()
	return events(d.t, d.direct, d.id)
}

// finish lets the execution end, stops all processes gracefully and checks the guarantees that must
// hold after any fault.
func (d *divided) finish(losses ...int) {
	d.t.Helper()
	d.proxy.Heal()
	d.goesOn()
	if err := os.WriteFile(d.path("release"), nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
	until(d.t, "the execution ends", func() bool { return d.now().State.Terminal() })
	for _, w := range []*started{d.far, d.near} {
		if !w.ended() {
			w.signal(syscall.SIGTERM)
			w.wait(patience).want(0)
		}
	}
	d.watched()
	d.detected(losses)
	stale := d.staleRefused()
	if err := d.direct.Close(); err != nil {
		d.t.Error(err)
	}
	d.server.signal(syscall.SIGTERM)
	d.server.wait(patience).want(0)
	d.conserved()
	d.sound()
	c := d.proxy.Counts()
	d.t.Logf("%d events, %d connections, %d cut, %d stale writes refused", len(d.history(d.id)), c.Connections, c.Cut,
		stale)
}

// watched checks that the watcher behind the proxy received every event once and in order
// (guarantee G15).
func (d *divided) watched() {
	d.t.Helper()
	seen, last := d.seen(), d.now().Seq
	for i, seq := range seen {
		if seq != int64(i+1) {
			d.t.Fatalf("G15: event %d arrived as number %d", seq, i+1)
		}
	}
	if int64(len(seen)) != last {
		d.t.Errorf("G15: %d of %d events were seen", len(seen), last)
	}
}

// detected checks that the engine noticed each loss of a session between TTL and TTL + 1 s after
// the last heartbeat (guarantee G6), and that the execution lost its owner the expected number of
// times.
func (d *divided) detected(losses []int) {
	d.t.Helper()
	all, err := d.direct.Workers(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, w := range all {
		if w.State != belay.WorkerLost {
			continue
		}
		if took := w.EndedAt.Sub(w.HeartbeatAt); took < farTTL || took > farTTL+time.Second {
			d.t.Errorf("G6: the loss of %s was noticed %s after its last heartbeat; want %s to %s", w.Name, took,
				farTTL,
				farTTL+time.Second)
		} else {
			d.t.Logf("the loss of %s was noticed %s after its last heartbeat", w.Name, took)
		}
	}
	if n := count(d.past(), "lost"); len(losses) > 0 && n != losses[0] {
		d.t.Errorf("lost %d times, want %d\n%s", n, losses[0], d.outline())
	}
}

// outline returns the history without the events of the checkpoints.
func (d *divided) outline() string {
	var few []belay.Event
	for _, ev := range d.past() {
		if ev.Kind != "step" {
			few = append(few, ev)
		}
	}
	return show(few)
}

// staleRefused returns the number of stale writes that the server has refused so far.
func (d *divided) staleRefused() (n int) {
	d.t.Helper()
	for line := range strings.Lines(d.api.call("GET", "/metrics", "").text) {
		if strings.HasPrefix(line, "belay_stale_writes_refused_total{") {
			var one int
			_, value, _ := strings.Cut(line, "} ")
			_, _ = fmt.Sscan(value, &one)
			n += one
		}
	}
	return n
}

// conserved checks in the store that the count is complete: each number is there once and in order,
// under the token of the worker that saved it. So no step was lost or repeated, and no worker saved
// a number before it had all smaller numbers (guarantees G1, G2 and G4). conserved also checks that
// every write that the server acknowledged to a worker is there, under the same token (guarantee
// G3).
func (d *divided) conserved() {
	d.t.Helper()
	saved := map[int]belay.Token{}
	for _, ev := range d.history(d.id) {
		if ev.Kind != "step" {
			continue
		}
		n := len(saved) + 1
		if ev.Name != fmt.Sprintf("n[%d]", n) || string(ev.Data) != fmt.Sprint(int64(ev.Token)) {
			d.t.Fatalf("event %d under token %d is %s with %s; want number %d", ev.Seq, ev.Token, ev.Name, ev.Data, n)
		}
		saved[n] = ev.Token
	}
	for _, name := range []string{"far", "near"} {
		all := readLedger(d.t, d.path(name))
		for _, a := range all {
			if saved[a.n] != a.token {
				d.t.Errorf("G3: %d was acknowledged to the %s worker under token %d; the store has it under %d", a.n,
					name, a.token, saved[a.n])
			}
		}
		d.t.Logf("%d numbers acknowledged to the %s worker", len(all), name)
	}
	x := d.execution(d.id)
	if x.State != belay.Succeeded || string(x.Output) != fmt.Sprint(len(saved)) {
		d.t.Errorf("the execution %s with %s after %d numbers", x.State, x.Output, len(saved))
	}
}
