package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/faultproxy"
)

// anyNumber marks faults after which the number of losses depends on chance.
const anyNumber = -1

// partitions are the faults between a worker and its server, each with the number of times that the
// execution loses its owner.
var partitions = []struct {
	name   string
	losses int
	happen func(d *divided, r *rand.Rand)
}{
	{"killed", 1, func(d *divided, _ *rand.Rand) {
		d.far.signal(syscall.SIGKILL)
		d.lost()
	}},
	{"stopped past its time and continued", 1, func(d *divided, _ *rand.Rand) {
		d.far.signal(syscall.SIGSTOP)
		defer d.far.signal(syscall.SIGCONT)
		d.lost()
		d.goesOn()
	}},
	{"cut off", 1, func(d *divided, _ *rand.Rand) {
		d.proxy.Set(faultproxy.Fault{Refuse: true})
		d.proxy.Cut()
		d.lost()
		d.goesOn()
	}},
	{"nothing reaches the server, and then all of it late", 1, func(d *divided, _ *rand.Rand) {
		d.proxy.Set(faultproxy.Fault{Hold: faultproxy.Up})
		d.lost()
		d.goesOn()
		d.proxy.Heal()
		until(d.t, "a write that came too late is refused", func() bool { return d.staleRefused() > 0 })
	}},
	{"nothing comes back from the server", 0, func(d *divided, _ *rand.Rand) {
		d.proxy.Set(faultproxy.Fault{Hold: faultproxy.Down})
		// the server gets the heartbeats and keeps the session, but the worker gets no replies, so
		// it must assume that it has lost its lease
		d.far.after(farTTL)
		fenced := d.now().Seq
		d.far.after(farTTL)
		if seq := d.now().Seq; seq != fenced {
			d.t.Errorf("the worker wrote %d events after its fence", seq-fenced)
		}
	}},
	{"slow", 0, func(d *divided, _ *rand.Rand) {
		d.proxy.Set(faultproxy.Fault{
			Latency: 100 * time.Millisecond, Jitter: 100 * time.Millisecond, Bandwidth: 100_000,
		})
		d.far.after(farTTL)
	}},
	{"half open", 0, func(d *divided, _ *rand.Rand) {
		d.proxy.HalfOpen()
		d.far.after(farTTL)
	}},
	{"replies dropped after the commit", 0, func(d *divided, r *rand.Rand) {
		for range 5 {
			d.proxy.Set(faultproxy.Fault{Hold: faultproxy.Down})
			told := len(readLedger(d.t, d.path("far")))
			until(d.t, "more is saved than the worker knows", func() bool { return int(d.now().Seq) > told+2 })
			d.proxy.Cut()
			d.proxy.Heal()
			d.goesOn()
		}
		d.proxy.Set(faultproxy.Fault{CutDown: 0.05})
		d.far.after(between(r, time.Second, 2*time.Second))
	}},
	{"random faults", anyNumber, func(d *divided, r *rand.Rand) {
		for over := time.Now().Add(faultTime()); time.Now().Before(over); {
			d.randomFault(r)
			d.far.after(between(r, 0, 1500*time.Millisecond))
			if r.IntN(3) > 0 {
				d.proxy.Heal()
				d.far.after(between(r, 0, 700*time.Millisecond))
			}
		}
	}},
}

// faultTime returns for how long a test causes random faults.
func faultTime() time.Duration {
	if *long {
		return time.Minute
	}
	return 8 * time.Second
}

// randomFault causes one random fault.
func (d *divided) randomFault(r *rand.Rand) {
	switch r.IntN(8) {
	case 0:
		d.proxy.Cut()
	case 1:
		d.proxy.HalfOpen()
	case 2:
		d.proxy.CutAfter(r.Int64N(2000) + 1)
	case 3:
		d.proxy.Set(faultproxy.Fault{Refuse: true})
		d.proxy.Cut()
	case 4:
		d.proxy.Set(faultproxy.Fault{Hold: faultproxy.Up})
	case 5:
		d.proxy.Set(faultproxy.Fault{Hold: faultproxy.Down})
	case 6:
		d.proxy.Set(faultproxy.Fault{CutUp: 0.1, CutDown: 0.1, Jitter: 50 * time.Millisecond})
	case 7:
		d.proxy.Set(faultproxy.Fault{Latency: between(r, 0, 300*time.Millisecond), Bandwidth: 20_000 + r.IntN(200_000)})
	}
}

// Rule: whatever happens to a worker over HTTP or to the network between worker and server, the
// guarantees G1 to G7 and G15 hold: only one owner writes at a time, no stale write is accepted,
// and no acknowledged write is lost; a loss is noticed within the TTL plus one second, and watchers
// miss nothing.
func TestPartitions(t *testing.T) {
	t.Parallel()
	r := dice(t)
	for _, p := range partitions {
		source := rand.New(rand.NewPCG(r.Uint64(), 0))
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			d := newDivided(t)
			d.begin()
			p.happen(d, source)
			if p.losses == anyNumber {
				d.finish()
			} else {
				d.finish(p.losses)
			}
		})
	}
}

// Rule: if the reply to a claim is lost, the claimed execution does not wait for the end of the
// TTL: it runs after one or two heartbeats. This holds if the connection breaks, and also if it
// stays open and delivers no data.
func TestLostClaimReply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		lose   func(p *faultproxy.Proxy)
		within time.Duration
	}{
		{"seen", (*faultproxy.Proxy).Cut, 2*farBeat + 500*time.Millisecond},
		// A worker waits for the reply to a heartbeat for half of the TTL before it treats the
		// connection as broken.
		{"silent", (*faultproxy.Proxy).HalfOpen, farBeat + farTTL/2 + 500*time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDivided(t)
			d.far = d.worker("far", "http://"+d.proxy.Addr())
			d.session("far")
			d.proxy.Set(faultproxy.Fault{Hold: faultproxy.Down})
			d.submit()
			until(t, "the execution is claimed", func() bool { return count(d.past(), "started") == 1 })
			test.lose(d.proxy)
			d.proxy.Heal()
			healed := time.Now()
			until(t, "the execution runs", func() bool { return count(d.past(), "step") > 0 })
			if took := time.Since(healed); took > test.within {
				t.Errorf("the execution ran %s after the network was repaired, want %s\n%s", took, test.within,
					d.outline())
			} else {
				t.Logf("the execution ran %s after the network was repaired", took.Round(time.Millisecond))
			}
			d.near = d.worker("near", d.api.url)
			d.session("near")
			d.finish(0)
		})
	}
}

// Rule: a worker freezes an agent's process tree when it cannot trust its lease any longer, and
// thaws the tree if the lease turns out to be still valid (guarantee G2). The lease is still valid
// in two cases: after a cut of the network that is shorter than the lease, and after a pause of the
// server, because time in which no server can act does not count towards the TTL.
func TestFrozenAtTheFenceAndThawed(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	for name, test := range map[string]struct{ break_, mend func(d *divided) }{
		"the server stood still": {
			func(d *divided) { d.server.signal(syscall.SIGSTOP) },
			func(d *divided) { d.far.after(ttl); d.server.signal(syscall.SIGCONT) },
		},
		"the link was cut": {
			func(d *divided) { d.proxy.Set(faultproxy.Fault{Hold: faultproxy.Both}) },
			func(d *divided) { d.proxy.Heal() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDivided(t)
			d.far = d.start(d.command(append([]string{
				"worker", "--server", "http://" + d.proxy.Addr(), "--ttl", ttl.String(),
			}, bare...)...))
			sign, free := d.path("sign"), d.path("free")
			r := d.belay("submit", "--server", d.api.url, "command", "--", "sh", "-c",
				fmt.Sprintf("while [ ! -e '%s' ]; do echo . >> '%s'; sleep 0.02; done; echo free", free, sign)).want(0)
			d.id = idOf(t, r.out)
			until(t, "the execution runs", func() bool { return size(sign) > 10 })

			test.break_(d)
			defer d.server.signal(syscall.SIGCONT)
			broken := time.Now()
			if !waitStill(sign) {
				t.Fatal("the agent was never frozen")
			}
			took := time.Since(broken)
			t.Logf("frozen %s after the fault began", took.Round(time.Millisecond))
			if took > ttl*2/3+time.Second {
				t.Errorf("frozen %s after the fault began; the lease was alive for %s at most", took, ttl)
			}
			before := size(sign)
			test.mend(d)
			until(t, "the agent continues", func() bool { return size(sign) > before })
			if err := os.WriteFile(free, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			until(t, "the execution ends", func() bool { return d.now().State.Terminal() })
			if all := d.past(); count(all, "succeeded") != 1 || count(all, "started") != 1 || count(all, "lost") != 0 {
				t.Errorf("one run that was never lost should have succeeded\n%s", show(all))
			}
			d.far.signal(syscall.SIGTERM)
			d.far.wait(patience).want(0)
			d.server.signal(syscall.SIGTERM)
			d.server.wait(patience).want(0)
			d.clean()
		})
	}
}

func size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// waitStill waits until a file that grows all the time has stopped growing for a moment.
func waitStill(file string) bool {
	last, since := size(file), time.Now()
	return poll(patience, func() bool {
		if n := size(file); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
}
