package agentapi

import (
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// streamed is a chat whose answer is sent while the agent works.
type streamed struct {
	*chat
	x       belay.Execution
	out     *stream
	want    belay.Token  // the first run whose output may be sent
	started []startedRun // the runs of the job that have started, as far as known
	from    int64        // the number of the next chunk to read
	sent    sentText
	last    time.Time // the time of the last write to the client
}

// stream sends the answer in parts. It sends the HTTP status before the job has a slot, because
// pings can follow only after the status. So it sends a later error as an event of the stream.
func (c *chat) stream(ctx context.Context) {
	x, err := c.b.Execution(ctx, c.id)
	if err != nil {
		c.refuse(c.disconnected(ctx, err))
		return
	}
	s := &streamed{chat: c, x: x, out: c.Service.stream(c.w), want: awaited(&x)}
	err = s.run(ctx)
	if err == nil {
		err = s.failure(&s.x)
	}
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		s.send(c.form.fail(&s.x, faultOf(c.problem(err)).Error))
	}
}

// send sends events, and reports whether the caller accepted them.
func (s *streamed) send(events []event) bool {
	s.last = s.o.Now()
	for _, e := range events {
		var ok bool
		if e.word != "" {
			ok = s.out.send([]byte("data: " + e.word + "\n\n"))
		} else {
			ok = s.out.event(e.name, "", e.data)
		}
		if !ok {
			return false
		}
	}
	return true
}

// run sends the agent's output until the job has ended, and then reads its execution.
func (s *streamed) run(ctx context.Context) error {
	if !s.send(s.form.begin(&s.x)) {
		return s.notRead(ctx)
	}
	for {
		now, err := s.b.Await(ctx, s.id, pollInterval)
		if err != nil {
			return s.disconnected(ctx, err)
		}
		switch ok, same, err := s.sendMore(ctx); {
		case err != nil:
			return s.disconnected(ctx, err)
		case !same:
			return s.diverged()
		case !ok:
			return s.notRead(ctx)
		}
		if now.State.Terminal() {
			s.x, err = s.b.Execution(ctx, s.id)
			return err
		}
		at := s.o.Now()
		if !at.Before(s.over) {
			return s.late()
		}
		if at.Sub(s.last) >= s.o.Ping {
			if s.last = at; !s.out.ping() {
				return s.notRead(ctx)
			}
		}
	}
}

// notRead returns the error for a stream whose caller has stopped reading. It cancels the job of a
// chat without an Idempotency-Key.
func (s *streamed) notRead(ctx context.Context) error {
	if !s.keyed {
		s.drop(ctx, s.id, "its caller has disconnected")
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: "the client does not read the stream"}
}

// diverged returns the error for a stream whose agent was started again and now gives an answer
// that differs from the text already sent.
func (s *streamed) diverged() error {
	message := "the agent was started again and its new answer differs from the text already sent"
	if s.keyed {
		message += "; its job continues: send the request again with the same Idempotency-Key"
	} else {
		s.drop(s.r.Context(), s.id, message)
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: message, RetryAfter: retryAfter}
}

// sendMore sends the output that the agent has written since the last call. ok is false if the
// caller did not accept the output. same is false if the output does not continue the text that was
// already sent.
func (s *streamed) sendMore(ctx context.Context) (ok, same bool, err error) {
	if s.sent.root == 0 {
		if known, err := s.known(ctx, s.want); err != nil || !known {
			return true, true, err
		}
		s.sent.root = root(s.started, s.started[len(s.started)-1].Token)
	}
	ok, same = true, true
	var failed error
	err = s.chunks(ctx, s.id, agent.AnswerLog, s.from, func(c belay.StoredChunk) bool {
		if _, failed = s.known(ctx, c.Token); failed != nil {
			return false
		}
		s.from = c.N + 1
		var text string
		text, same = s.sent.add(c.Token, root(s.started, c.Token), c.Data)
		ok = text == "" || s.send(s.form.say(&s.x, text))
		return ok && same
	})
	return ok, same, errors.Join(err, failed)
}

// known reports whether run, or a later run, has started its command. It reads the list of started
// runs from the store if the known list is too short: each run stores that it has started before it
// stores any output.
func (s *streamed) known(ctx context.Context, run belay.Token) (bool, error) {
	is := func() bool { return len(s.started) > 0 && s.started[len(s.started)-1].Token >= run }
	if is() {
		return true, nil
	}
	all, err := s.Service.startedRuns(ctx, s.id)
	if err == nil {
		s.started = all
	}
	return is(), err
}

// finish sends the rest of the answer and the end of the stream.
func (s *streamed) finish() error {
	a := said(&s.x)
	rest, same := s.sent.end(a.Text)
	if !same {
		return s.diverged()
	}
	// The store keeps only the end of a long answer. If the client has got a part of the answer before, it has got all
	// of it.
	t := told{text: string(s.sent.text) + rest, cut: a.Cut && len(s.sent.text) == 0, long: s.sent.long}
	if rest == "" || s.send(s.form.say(&s.x, rest)) {
		s.send(s.form.end(&s.x, a, t))
	}
	return nil
}
