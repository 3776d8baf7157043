package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
)

// BenchmarkCommitsBesideFollowers measures how many commits a server on SQLite makes without followers and with
// a thousand followers of states, of whom a tenth reads 5 kB/s. In the case "labels" eight clients commit as fast
// as they can, the fast followers follow one label each, and the slow followers follow everything. In the case
// "everything" one client begins an execution every 40 ms, and all followers follow everything. A round with
// followers and a round without them make a pair, in alternating order, because the speed of the disk changes; the
// ratio is the median over the pairs. No follower may miss a change.
func BenchmarkCommitsBesideFollowers(b *testing.B) {
	b.Run("labels", func(b *testing.B) { benchmarkFollowers(b, 1000, 8, 0, true) })
	b.Run("everything", func(b *testing.B) { benchmarkFollowers(b, 1000, 1, 40*time.Millisecond, false) })
}

// The small form of the benchmark, without a look at the clock: no follower misses a change.
func TestFollowersBesideCommits(t *testing.T) {
	f := newFollowed(t, 100, true)
	f.follow()
	if n := f.load(4, 200); n != 200 {
		t.Errorf("%d executions", n)
	}
	f.leave()
}

func benchmarkFollowers(b *testing.B, followers, clients int, every time.Duration, labels bool) {
	const rounds, length = 9, 2 * time.Second
	f := newFollowed(b, followers, labels)
	var alone, followed []float64
	used := make(map[bool]time.Duration) // processor time, of the clients too
	for b.Loop() {
		for round := range rounds {
			for _, with := range []bool{round%2 == 1, round%2 == 0} {
				if with {
					f.follow()
				}
				began, before := time.Now(), cpu()
				ctx, stop := context.WithTimeout(b.Context(), length)
				n := f.loadUntil(ctx, clients, every)
				stop()
				rate := float64(3*n) / time.Since(began).Seconds()
				used[with] += cpu() - before
				if with {
					followed = append(followed, rate)
					f.leave()
				} else {
					alone = append(alone, rate)
				}
			}
		}
	}
	pairs := make([]float64, rounds)
	for i := range pairs {
		pairs[i] = followed[i] / alone[i]
	}
	slices.Sort(pairs)
	slices.Sort(alone)
	slices.Sort(followed)
	b.ReportMetric(alone[len(alone)/2], "commits/s-alone")
	b.ReportMetric(followed[len(followed)/2], "commits/s-followed")
	b.ReportMetric(pairs[len(pairs)/2], "ratio")
	b.ReportMetric(pairs[len(pairs)/4], "ratio-quartile")
	b.ReportMetric(float64(used[false].Milliseconds())/rounds, "cpu-alone-ms/round")
	b.ReportMetric(float64(used[true].Milliseconds())/rounds, "cpu-followed-ms/round")
	b.ReportMetric(float64(f.missed.Load()), "missed")
}

// followed is a server with followers.
type followed struct {
	testing.TB
	*server
	back      *embedded.Backend
	followers int
	labels    bool // the fast followers follow one label each
	client    *http.Client

	began  atomic.Int64 // number of executions since the beginning
	missed atomic.Int64

	first int64          // the number of the first execution of this round
	over  chan struct{}  // closed when the load has ended
	last  []atomic.Int64 // the number of executions of each label in this round
	done  sync.WaitGroup
	end   context.CancelFunc
}

func newFollowed(t testing.TB, followers int, labels bool) *followed {
	t.Helper()
	back, err := embedded.Open(t.Context(), "sqlite:"+t.TempDir(), embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = back.Close() })
	s := serveNarrow(t, back, httpapi.Options{Rate: httpapi.Rate{PerSecond: -1}, WriteTimeout: time.Minute})
	f := &followed{TB: t, server: s, back: back, followers: followers, labels: labels, client: narrowClient()}
	f.last = make([]atomic.Int64, followers)
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// load runs executions with some clients, and returns how many.
func (f *followed) load(clients int, most int64) int64 {
	f.first = f.began.Load()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for n := f.began.Add(1); n <= f.first+most; n = f.began.Add(1) {
				f.one(n)
			}
		})
	}
	all.Wait()
	f.began.Store(f.first + most)
	return most
}

func (f *followed) loadUntil(ctx context.Context, clients int, every time.Duration) int64 {
	var n atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				f.one(f.began.Add(1))
				n.Add(1)
				if every > 0 {
					select {
					case <-time.After(every):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	all.Wait()
	return n.Load()
}

// one runs an execution with three commits, each of which changes its state.
func (f *followed) one(n int64) {
	label := n % int64(f.followers)
	f.last[label].Add(1)
	ctx := context.Background()
	got, err := f.back.Submit(ctx, belay.Submission{
		Workflow: "w", External: true, Labels: map[string]string{"user": strconv.FormatInt(label, 10)},
	})
	if err != nil || got[0].Err != nil {
		f.Error(err, got)
		return
	}
	l, err := f.back.Lock(ctx, belay.LockRequest{Execution: got[0].ID, Owner: "me", TTL: belay.Duration(time.Minute)})
	if err == nil {
		err = f.back.Settle(ctx, belay.Settlement{Lease: l.Lease, Outcome: belay.OutcomeSucceeded})
	}
	if err != nil {
		f.Error(err)
	}
}

// follow opens all streams and waits for their snapshots.
func (f *followed) follow() {
	f.over = make(chan struct{})
	for i := range f.last {
		f.last[i].Store(0)
	}
	ctx, end := context.WithCancel(context.Background())
	f.end = end
	var joined sync.WaitGroup
	joined.Add(f.followers)
	for i := range f.followers {
		f.done.Go(func() { f.read(ctx, i, joined.Done) })
	}
	joined.Wait()
}

// leave ends the load, waits until each follower has seen all changes, and closes the streams.
func (f *followed) leave() {
	close(f.over)
	f.done.Wait()
	f.end()
}

// want is how many changes a follower must see; it is final once the load is over.
func (f *followed) want(i int) (n int) {
	for label := range f.last {
		if i < 0 || label == i {
			n += 3 * int(f.last[label].Load())
		}
	}
	return n
}

// read follows: a label, or everything if i is a tenth. It then reads slowly until the load is over.
func (f *followed) read(ctx context.Context, i int, joined func()) {
	slow, query, label := i%10 == 0, "", -1
	if f.labels && !slow {
		query, label = fmt.Sprintf("?label=user%%3D%d", i), i
	}
	s, err := f.open(ctx, f.client, states+query)
	if err != nil {
		joined()
		f.Error(err)
		return
	}
	defer s.body.Close()
	mark := []byte("event: change\n")
	var text []byte
	var got atomic.Int64
	begun, late := false, false
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	deadline := time.AfterFunc(5*time.Minute, func() { _ = s.body.Close() })
	defer deadline.Stop()
	f.done.Go(func() { // ends the read of a follower that has seen everything already
		<-f.over
		if int(got.Load()) >= f.want(label) {
			_ = s.body.Close()
		}
	})
	for buffer := make([]byte, 16<<10); ; {
		select {
		case <-f.over:
			late = true
		default:
		}
		if late && int(got.Load()) >= f.want(label) {
			break
		}
		part := buffer
		if slow && !late && begun {
			select {
			case <-pause.C:
			case <-f.over:
			}
			part = buffer[:512]
		}
		n, err := s.in.Read(part)
		text = append(text, part[:n]...)
		seen := int(got.Add(int64(bytes.Count(text, mark))))
		if snapshots := bytes.Count(text, []byte("event: snapshot\n")); snapshots > 0 {
			if begun {
				f.Errorf("follower %d got another snapshot", i)
			}
			begun = true
			joined()
		}
		if cut := bytes.LastIndexByte(text, '\n'); cut >= 0 {
			text = append(text[:0], text[cut+1:]...)
		}
		if err != nil {
			if want := f.want(label); seen < want {
				f.missed.Add(int64(want - seen))
				f.Errorf("follower %d saw %d of %d changes: %v", i, seen, want, err)
			}
			break
		}
	}
	if seen := int(got.Load()); seen > f.want(label) {
		f.Errorf("follower %d saw %d changes instead of %d", i, seen, f.want(label))
	}
}
