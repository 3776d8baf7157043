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
	// maxBatches is how many batches are in flight at the same time: while the server commits one
	// batch, the client sends the next.
	maxBatches = 2
	// fullBatch is the size in bytes at which a batch is full. It is smaller than the server's
	// limit, so that small operations do not wait behind many large ones.
	fullBatch = 2 << 20
	// slowest is the lowest speed that the client expects of a connection, in bytes per second.
	// Each further second that a large batch needs at this speed is added to the batch's deadline.
	slowest = 64 << 10

	batchHead, batchTail = `{"ops":[`, `]}`
)

// batcher sends operations in batches, each in one request. Operations that arrive while maxBatches
// batches are in flight become the next batch.
type batcher struct {
	c *Client

	mu sync.Mutex
	// queues[0] has submissions of root executions, and queues[1] all other operations. The client
	// sends them in separate batches, so that an overloaded server can refuse a batch of submissions
	// after it has read only the HTTP header of the request.
	queues   [2][]*operation
	turn     int // the index of the queue from which the next batch is taken first
	inFlight int
}

// operation is one operation that is queued or in flight.
type operation struct {
	op    string // the name of the operation in errors
	body  []byte
	kind  int            // the index of the operation's queue: 0 for a submission of a root execution
	reply chan outcome   // buffered, so that a goroutine that sends the answer never blocks
	state operationState // the batcher's mu guards it
}

type operationState uint8

const (
	queued operationState = iota
	sent
	abandoned
)

// outcome is the result of an operation, or its error.
type outcome struct {
	wire.Result
	err error
}

// do carries out one operation, and sends it at most once. If ctx ends before do has sent the
// operation, do never sends it.
func (b *batcher) do(ctx context.Context, op string, o wire.Op) (wire.Result, error) {
	f, err := newOperation(op, o)
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

func newOperation(op string, o wire.Op) (*operation, error) {
	data, err := body(op, o)
	if err != nil {
		return nil, err
	}
	if most := wire.MaxBatchBody - len(batchHead) - len(batchTail); len(data) > most {
		return nil, &belay.Error{
			Code: belay.CodePayloadTooLarge, Op: op,
			Message: fmt.Sprintf("the operation has %d bytes; a payload may have %d", len(data), belay.MaxPayload),
		}
	}
	f := &operation{op: op, body: data, reply: make(chan outcome, 1)}
	if o.Submit == nil || o.Submit.Parent != nil {
		f.kind = 1
	}
	return f, nil
}

func (b *batcher) enqueue(ops ...*operation) error {
	done, err := b.c.begin()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range ops {
		b.queues[f.kind] = append(b.queues[f.kind], f)
	}
	if b.inFlight == maxBatches {
		done() // the running goroutines send ops too, and Close waits for them
		return nil
	}
	b.inFlight++
	go func() {
		defer done()
		b.sendQueued()
	}()
	return nil
}

func (b *batcher) await(ctx context.Context, f *operation) (wire.Result, error) {
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
	case l := <-f.reply: // ctx ended too, but the answer has arrived, so it is returned
		return l.Result, l.err
	default:
	}
	return wire.Result{}, &belay.Error{
		Code: belay.CodeUnavailable, Op: f.op, Message: outcomeUnknown, Err: context.Cause(ctx),
	}
}

func notSent(ctx context.Context, op string) error {
	return &belay.Error{
		Code: belay.CodeUnavailable, Op: op, Message: "given up before it was sent", Err: context.Cause(ctx),
	}
}

// sendQueued sends batches until nothing is queued.
func (b *batcher) sendQueued() {
	for {
		ops := b.take()
		if len(ops) == 0 {
			return
		}
		b.post(ops)
	}
}

// take removes the next batch from a queue, oldest operation first; the queues take turns. If both
// queues are empty, take returns nil, and decrements inFlight because the goroutine that called
// take then ends.
func (b *batcher) take() []*operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.queues {
		batch := b.takeOf(&b.queues[b.turn])
		b.turn = (b.turn + 1) % len(b.queues)
		if len(batch) > 0 {
			return batch
		}
	}
	b.inFlight--
	return nil
}

func (b *batcher) takeOf(queue *[]*operation) []*operation {
	var batch []*operation
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

// post sends one batch and delivers the results. If the whole batch fails, each of its operations
// gets the error, with one exception: if the content of one operation may have caused the error,
// the server has carried out nothing, and post sends the two halves of the batch separately. So an
// operation that the server cannot read does not make the others fail.
func (b *batcher) post(ops []*operation) {
	results, err := b.send(ops)
	if half := len(ops) / 2; half > 0 && unreadable(err) {
		b.post(ops[:half])
		b.post(ops[half:])
		return
	}
	for i, f := range ops {
		l := outcome{err: err}
		if err == nil {
			l.Result = results[i]
			if p := l.Error; p != nil {
				l.err = problem(p)
			}
		}
		f.reply <- l
	}
}

// unreadable reports whether a server refused a request because of its content.
func unreadable(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeMalformed, belay.CodeInvalid, belay.CodePayloadTooLarge:
		return err != nil
	}
	return false
}

func (b *batcher) send(ops []*operation) ([]wire.Result, error) {
	var reply wire.BatchReply
	r := request{method: http.MethodPost, path: "/v1/batch", body: join(ops), reply: &reply}
	if ops[0].kind == 0 {
		r.header = http.Header{wire.HeaderOnly: {wire.OnlySubmits}}
	}
	r.op = fmt.Sprintf("batch of %d", len(ops))
	if len(ops) == 1 {
		r.op = ops[0].op
	}
	r.longer = time.Duration(len(r.body)/slowest) * time.Second
	if err := b.c.try(context.WithoutCancel(b.c.open), &r); err != nil {
		return nil, err
	}
	if len(reply.Results) != len(ops) {
		return nil, &belay.Error{
			Code: belay.CodeInternal, Op: r.op, Message: fmt.Sprintf("the server sent %d results for %d operations",
				len(reply.Results), len(ops)),
		}
	}
	return reply.Results, nil
}

// join returns the body of a batch request.
func join(ops []*operation) []byte {
	size := len(batchHead) + len(batchTail)
	for _, f := range ops {
		size += len(f.body) + 1
	}
	out := append(make([]byte, 0, size), batchHead...)
	for i, f := range ops {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, f.body...)
	}
	return append(out, batchTail...)
}
