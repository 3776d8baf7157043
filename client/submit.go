package client

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Submit accepts executions. Those that a run starts as its children are sent once,
// as all that is done under a lease; the others are repeated.
func (c *Client) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	out := make([]belay.Submitted, len(s))
	open := make([]int, len(s)) // without an answer
	for i := range s {
		if s[i].ID.IsZero() {
			s[i].ID = belay.ExecutionID(c.set.ids())
		}
		open[i] = i
	}
	err := c.repeat(ctx, "submit", func() error {
		var err error
		open, err = c.submit(ctx, s, out, open)
		return err
	})
	if err != nil && len(open) == len(s) {
		return nil, err
	}
	return out, nil
}

// submit sends what is open, and gives what is to be sent again and why.
func (c *Client) submit(ctx context.Context, s []belay.Submission, out []belay.Submitted, open []int) (again []int,
	err error) {
	flights := make([]*flight, 0, len(open))
	for _, i := range open {
		w := wire.SubmitOf(s[i])
		f, err := newFlight("submit "+s[i].ID.String(), wire.Op{Submit: &w})
		if err != nil {
			f = &flight{state: sent, reply: make(chan landing, 1)}
			f.reply <- landing{err: err}
		}
		flights = append(flights, f)
	}
	if err := c.batches.enqueue(flights...); err != nil {
		return open, err
	}
	for n, i := range open {
		r, refused := c.batches.await(ctx, flights[n])
		out[i] = belay.Submitted{ID: s[i].ID, Err: refused}
		if r.Submitted != nil && refused == nil {
			out[i] = *r.Submitted
		}
		if refused != nil && passing(refused) && s[i].Parent == nil {
			again, err = append(again, i), refused
		}
	}
	return again, err
}
