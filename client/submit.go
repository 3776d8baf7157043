package client

import (
	"context"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/wire"
)

// Submit accepts executions. The Client sends submissions of children once, like all writes under a
// lease, and repeats all other submissions after temporary errors.
func (c *Client) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	out := make([]belay.Submitted, len(s))
	open := make([]int, len(s)) // the indexes of the submissions without an answer
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

// submit sends the submissions whose indexes are in open, and stores the answers in out. It returns
// the indexes of the submissions to send again, and the last temporary error.
func (c *Client) submit(ctx context.Context, s []belay.Submission, out []belay.Submitted, open []int) (again []int,
	err error) {
	ops := make([]*operation, 0, len(open))
	for _, i := range open {
		w := wire.SubmitOf(s[i])
		if c.set.key != "" {
			w.Actor = "" // the server uses the name of the key
		}
		f, err := newOperation("submit "+s[i].ID.String(), wire.Op{Submit: &w})
		if err != nil {
			f = &operation{state: sent, reply: make(chan outcome, 1)}
			f.reply <- outcome{err: err}
		}
		ops = append(ops, f)
	}
	if err := c.batches.enqueue(ops...); err != nil {
		return open, err
	}
	for n, i := range open {
		r, refused := c.batches.await(ctx, ops[n])
		out[i] = belay.Submitted{ID: s[i].ID, Err: refused}
		if r.Submitted != nil && refused == nil {
			out[i] = *r.Submitted
		}
		if refused != nil && retry.Transient(refused) && s[i].Parent == nil {
			again, err = append(again, i), refused
		}
	}
	return again, err
}
