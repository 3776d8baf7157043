package httpapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

// What is held together is never more than there is room for; who waits gets it in
// order, who waits too long is refused, and who has given up is in nobody's way.
func TestRoomIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		r := newRoom(10 * mib)
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
		if belay.CodeOf(err) != belay.CodeUnavailable || time.Since(began) != roomWait {
			t.Errorf("without room: %v after %s", err, time.Since(began))
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
		wait(t.Context(), 5*mib) // does not fit beside the one before
		giveUp()
		synctest.Wait()
		giveAll()
		first := <-order
		synctest.Wait()
		if first.n != 6*mib || len(order) != 0 {
			t.Errorf("the first to get room has %d bytes, and %d others have some", first.n, len(order))
		}
		first.give()
		second := <-order
		second.give()
		if second.n != 5*mib || r.free != 10*mib || r.queue.Len() != 0 {
			t.Errorf("then came %d; %d bytes are free and %d wait at the end", second.n, r.free, r.queue.Len())
		}
	})
}

// Rule: a heartbeat that is too long to need no room is the first to get some.
func TestHeartbeatsGetRoomFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		r := newRoom(2 * mib)
		give, err := r.take(t.Context(), 2*mib)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		wait := func(who string, take func(context.Context, int64) (func(), error), n int64) {
			go func() {
				if give, err := take(t.Context(), n); err == nil {
					order <- who
					give()
				}
			}()
			synctest.Wait()
		}
		wait("a body", r.take, 2*mib)
		wait("a heartbeat", r.first, mib)
		give()
		synctest.Wait()
		if first, second := <-order, <-order; first != "a heartbeat" || second != "a body" || r.free != 2*mib {
			t.Errorf("first came %s, then %s, with %d bytes free", first, second, r.free)
		}
	})
}

// A body that needs more than there will ever be is refused like any other.
func TestRoomIsTooSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1 << 20)
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
