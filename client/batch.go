package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

const (
	// maxFlights is how many batches are on their way at the same time: while the
	// server commits one, the next travels.
	maxFlights = 2
	// fullBatch is how many bytes make a batch that nothing is added to. It is
	// less than a server takes, so that what is small does not wait for much.
	fullBatch = 2 << 20
	// slowest is how many bytes of a batch a second must get through.
	slowest = 64 << 10

	batchHead, batchTail = `{"ops":[`, `]}`
)

// batcher sends operations. What is handed to it while maxFlights batches are on
// their way becomes the next batch.
type batcher struct {
	c *Client

	mu sync.Mutex
	// queues are what submits roots, and what does anything else. They travel apart, so that a
	// server that is asked for too much refuses submissions by the head of their batch.
	queues  [2][]*flight
	turn    int // the queue that is asked first for the next batch
	flights int
}

// flight is one operation on its way.
type flight struct {
	op    string // for errors
	body  []byte
	kind  int          // the queue it waits in: 0 for a submission of a root
	reply chan landing // takes the answer without anybody waiting
	state flightState  // under the batcher's mu
}

type flightState uint8

const (
	queued flightState = iota
	sent
	abandoned
)

// landing is how a flight ended.
type landing struct {
	wire.Result
	err error
}

// do carries out one operation: it is sent once. If ctx ends before that, it never
// is.
func (b *batcher) do(ctx context.Context, op string, o wire.Op) (wire.Result, error) {
	f, err := newFlight(op, o)
	if err != nil {
		return wire.Result{}, err
	}
	if ctx.Err() != nil {
		return wire.Result{}, notSent(ctx, op)
	}
	if err := b.enqueue(f); err != nil {
		return wire.Result{}, err
	}
	return b.await(ctx, f)
}

func newFlight(op string, o wire.Op) (*flight, error) {
	data, err := body(op, o)
	if err != nil {
		return nil, err
	}
	if most := wire.MaxBatchBody - len(batchHead) - len(batchTail); len(data) > most {
		return nil, &belay.Error{
			Code: belay.CodePayloadTooLarge, Op: op,
			Message: fmt.Sprintf("it has %d bytes; a payload may have %d", len(data), belay.MaxPayload),
		}
	}
	f := &flight{op: op, body: data, reply: make(chan landing, 1)}
	if o.Submit == nil || o.Submit.Parent != nil {
		f.kind = 1
	}
	return f, nil
}

func (b *batcher) enqueue(flights ...*flight) error {
	done, err := b.c.begin()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range flights {
		b.queues[f.kind] = append(b.queues[f.kind], f)
	}
	if b.flights == maxFlights {
		done() // whoever flies counts as running until the queue is empty
		return nil
	}
	b.flights++
	go func() {
		defer done()
		b.fly()
	}()
	return nil
}

func (b *batcher) await(ctx context.Context, f *flight) (wire.Result, error) {
	select {
	case l := <-f.reply:
		return l.Result, l.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.state == queued {
		f.state = abandoned
		return wire.Result{}, notSent(ctx, f.op)
	}
	select {
	case l := <-f.reply: // both came at once, and the answer is worth more
		return l.Result, l.err
	default:
	}
	return wire.Result{}, &belay.Error{Code: belay.CodeUnavailable, Op: f.op, Message: unknown, Err: context.Cause(ctx)}
}

func notSent(ctx context.Context, op string) error {
	return &belay.Error{
		Code: belay.CodeUnavailable, Op: op, Message: "given up before it was sent", Err: context.Cause(ctx),
	}
}

// fly sends batches until nothing is queued.
func (b *batcher) fly() {
	for {
		flights := b.take()
		if len(flights) == 0 {
			return
		}
		b.post(flights)
	}
}

// take gives the next batch, oldest first, of one queue and then of the other. With none,
// one flies less.
func (b *batcher) take() []*flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.queues {
		batch := b.takeOf(&b.queues[b.turn])
		b.turn = (b.turn + 1) % len(b.queues)
		if len(batch) > 0 {
			return batch
		}
	}
	b.flights--
	return nil
}

func (b *batcher) takeOf(queue *[]*flight) []*flight {
	var batch []*flight
	n, size := 0, len(batchHead)+len(batchTail)
	for _, f := range *queue {
		if f.state == queued {
			if len(batch) == wire.MaxBatch || len(batch) > 0 && size+len(f.body)+1 > fullBatch {
				break
			}
			f.state = sent
			size += len(f.body) + 1
			batch = append(batch, f)
		}
		n++
	}
	clear((*queue)[:n])
	*queue = (*queue)[n:]
	if len(*queue) == 0 {
		*queue = nil
	}
	return batch
}

// post sends one batch and hands out the answers. An error of the whole is that of
// each, unless it may be for what one of them holds: then nothing was carried out,
// and the batch is halved, so that what cannot be read never fails its neighbours.
func (b *batcher) post(flights []*flight) {
	results, err := b.send(flights)
	if half := len(flights) / 2; half > 0 && unreadable(err) {
		b.post(flights[:half])
		b.post(flights[half:])
		return
	}
	for i, f := range flights {
		l := landing{err: err}
		if err == nil {
			l.Result = results[i]
			if p := l.Error; p != nil {
				l.err = problem(p)
			}
		}
		f.reply <- l
	}
}

// unreadable reports whether a server refuses a request for what is in it.
func unreadable(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeMalformed, belay.CodeInvalid, belay.CodePayloadTooLarge:
		return err != nil
	}
	return false
}

func (b *batcher) send(flights []*flight) ([]wire.Result, error) {
	var reply wire.BatchReply
	r := request{method: http.MethodPost, path: "/v1/batch", body: join(flights), reply: &reply}
	if flights[0].kind == 0 {
		r.header = http.Header{wire.HeaderOnly: {wire.OnlySubmits}}
	}
	r.op = fmt.Sprintf("batch of %d", len(flights))
	if len(flights) == 1 {
		r.op = flights[0].op
	}
	r.longer = time.Duration(len(r.body)/slowest) * time.Second
	if err := b.c.try(context.WithoutCancel(b.c.open), &r); err != nil {
		return nil, err
	}
	if len(reply.Results) != len(flights) {
		return nil, &belay.Error{
			Code: belay.CodeInternal, Op: r.op, Message: fmt.Sprintf("the server answered %d of %d operations",
				len(reply.Results), len(flights)),
		}
	}
	return reply.Results, nil
}

// join is the body of a batch.
func join(flights []*flight) []byte {
	size := len(batchHead) + len(batchTail)
	for _, f := range flights {
		size += len(f.body) + 1
	}
	out := append(make([]byte, 0, size), batchHead...)
	for i, f := range flights {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, f.body...)
	}
	return append(out, batchTail...)
}
