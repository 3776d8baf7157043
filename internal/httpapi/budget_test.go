package httpapi

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

// The bodies in memory together never exceed the memory budget. Bodies that wait get memory in
// order of arrival. A body that waits too long is refused, and a body whose request is cancelled
// does not block the bodies behind it.
func TestTheMemoryOfBodiesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		r := newBudget(10 * mib)
		giveAll, err := r.take(t.Context(), 10*mib)
		if err != nil {
			t.Fatal(err)
		}
		if give, err := r.take(t.Context(), smallBody); err != nil {
			t.Errorf("a small body waits: %v", err)
		} else {
			give()
		}
		began := time.Now()
		_, err = r.take(t.Context(), mib)
		if belay.CodeOf(err) != belay.CodeUnavailable || time.Since(began) != memoryWait {
			t.Errorf("without memory: %v after %s", err, time.Since(began))
		}

		type got struct {
			n    int64
			give func()
		}
		order := make(chan got, 3)
		wait := func(ctx context.Context, n int64) {
			go func() {
				if give, err := r.take(ctx, n); err == nil {
					order <- got{n, give}
				}
			}()
			synctest.Wait()
		}
		ctx, giveUp := context.WithCancel(t.Context())
		wait(ctx, 9*mib)
		wait(t.Context(), 6*mib)
		wait(t.Context(), 5*mib) // this body does not fit into the memory beside the body before it
		giveUp()
		synctest.Wait()
		giveAll()
		first := <-order
		synctest.Wait()
		if first.n != 6*mib || len(order) != 0 {
			t.Errorf("the first to get memory has %d bytes, and %d others have some", first.n, len(order))
		}
		first.give()
		second := <-order
		second.give()
		if second.n != 5*mib || r.free != 10*mib || r.queue.Len() != 0 {
			t.Errorf("then came %d; %d bytes are free and %d wait at the end", second.n, r.free, r.queue.Len())
		}
	})
}

// Heartbeats that are too long for smallBody get memory before all other bodies, in order of
// arrival, until heartbeats together have 1/firstOf of the budget. Further heartbeats wait in one
// queue with the other bodies.
func TestHeartbeatsGetMemoryFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		r := newBudget(2 * firstOf * mib)
		give, err := r.take(t.Context(), 2*firstOf*mib)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		var mu sync.Mutex
		wait := func(who string, take func(context.Context, int64) (func(), error)) {
			go func() {
				if give, err := take(t.Context(), mib); err == nil {
					mu.Lock()
					order = append(order, who)
					mu.Unlock()
					give()
				}
			}()
			synctest.Wait()
		}
		wait("a body", r.take)
		for _, who := range []string{"the first heartbeat", "the second", "the third"} {
			wait(who, r.first)
		}
		r.mu.Lock()
		var queued []int
		for _, q := range []*list.List{&r.before, &r.queue} {
			queued = append(queued, q.Len())
		}
		r.mu.Unlock()
		if want := []int{2, 2}; !slices.Equal(queued, want) {
			t.Errorf("%v wait before others and in order, want %v", queued, want)
		}
		give()
		synctest.Wait()
		if len(order) != 4 || r.free != 2*firstOf*mib || r.ahead != 2*mib {
			t.Errorf("%q came, with %d bytes free and %d for those that go first", order, r.free, r.ahead)
		}
	})
}

// Of two heartbeats that wait for memory, the older one gets memory first.
func TestTheOlderHeartbeatGetsMemoryFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		r := newBudget(firstOf * mib)
		give, err := r.take(t.Context(), (firstOf-1)*mib+mib/2)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		for _, x := range []struct {
			who  string
			size int64
		}{{"the older", mib * 3 / 4}, {"the newer", mib / 4}} { // there is memory for the newer heartbeat alone
			go func() {
				if give, err := r.first(t.Context(), x.size); err == nil {
					order <- x.who
					give()
				}
			}()
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Errorf("%s overtook the older", <-order)
		}
		give()
		synctest.Wait()
		if len(order) != 2 {
			t.Errorf("%d came", len(order))
		}
	})
}

// A body that needs more than the whole memory budget is refused after memoryWait, like a body for
// which there is no free memory, and does not block the next body.
func TestABodyLargerThanTheBudgetIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBudget(1 << 20)
		if _, err := r.take(t.Context(), 2<<20); belay.CodeOf(err) != belay.CodeUnavailable {
			t.Errorf("got %v", err)
		}
		if give, err := r.take(t.Context(), 1<<20); err != nil {
			t.Errorf("what fits, after it: %v", err)
		} else {
			give()
		}
	})
}
