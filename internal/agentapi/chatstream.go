package agentapi

import (
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// streamed is a chat that is answered as the agent speaks.
type streamed struct {
	*chat
	out   *stream
	want  belay.Token // the first run whose words may count
	begun []begun     // the runs that are known
	from  int64       // the next chunk
	told  told
	last  time.Time // when something was written
}

// stream answers in pieces. Its status is sent before the job has a slot, so that
// there can be pings: what fails after that is an error in the stream.
func (c *chat) stream(ctx context.Context) {
	s := &streamed{chat: c, out: c.Service.stream(c.w), last: c.o.Now()}
	x, err := s.run(ctx)
	if err == nil {
		err = s.failure(x)
	}
	if err == nil {
		err = s.finish(x)
	}
	if err != nil {
		s.out.event("", "", faultOf(c.problem(c.r, err)))
	}
}

// run passes on what the agent writes until the job has ended.
func (s *streamed) run(ctx context.Context) (*belay.Execution, error) {
	x, err := s.b.Execution(ctx, s.id)
	if err != nil {
		return nil, s.gone(ctx, err)
	}
	s.want = awaited(&x)
	empty := ""
	if !s.delta(&x, Spoken{"assistant", &empty}) {
		return nil, s.left(ctx)
	}
	for {
		now, err := s.b.Await(ctx, s.id, look)
		if err != nil {
			return nil, s.gone(ctx, err)
		}
		switch ok, same, err := s.more(ctx, &x); {
		case err != nil:
			return nil, s.gone(ctx, err)
		case !same:
			return nil, s.strayed()
		case !ok:
			return nil, s.left(ctx)
		}
		if now.State.Terminal() {
			x, err = s.b.Execution(ctx, s.id)
			return &x, err
		}
		at := s.o.Now()
		if !at.Before(s.over) {
			return nil, s.late()
		}
		if at.Sub(s.last) >= s.o.Ping {
			if s.last = at; !s.out.ping() {
				return nil, s.left(ctx)
			}
		}
	}
}

// left is the end of a stream that its caller does not take any more.
func (s *streamed) left(ctx context.Context) error {
	if !s.keyed {
		s.drop(ctx, s.id, "its caller has gone")
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: "the stream was not taken"}
}

// strayed is the end of a stream whose agent began again and says something else
// than what was passed on.
func (s *streamed) strayed() error {
	message := "the agent had to begin again and answers otherwise than it had begun"
	if s.keyed {
		message += "; its job goes on: ask again with the same Idempotency-Key"
	} else {
		s.drop(s.r.Context(), s.id, message)
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: message, RetryAfter: retryAfter}
}

// more passes on what came since. It is ok if the caller took it, and same if it
// goes on where what was passed on ends.
func (s *streamed) more(ctx context.Context, x *belay.Execution) (ok, same bool, err error) {
	if s.told.root == 0 {
		if known, err := s.known(ctx, s.want); err != nil || !known {
			return true, true, err
		}
		s.told.root = root(s.begun, s.begun[len(s.begun)-1].Token)
	}
	ok, same = true, true
	var failed error
	err = s.chunks(ctx, s.id, agent.AnswerLog, s.from, func(c belay.StoredChunk) bool {
		if _, failed = s.known(ctx, c.Token); failed != nil {
			return false
		}
		s.from = c.N + 1
		var text string
		text, same = s.told.add(c.Token, root(s.begun, c.Token), c.Data)
		ok = text == "" || s.delta(x, Spoken{Content: &text})
		return ok && same
	})
	return ok, same, errors.Join(err, failed)
}

// known reports whether a run, or a later one, is known to have begun: nothing that it
// says is stored before that is.
func (s *streamed) known(ctx context.Context, run belay.Token) (bool, error) {
	is := func() bool { return len(s.begun) > 0 && s.begun[len(s.begun)-1].Token >= run }
	if is() {
		return true, nil
	}
	all, err := s.Service.begun(ctx, s.id)
	if err == nil {
		s.begun = all
	}
	return is(), err
}

func (s *streamed) delta(x *belay.Execution, said Spoken) bool {
	s.last = s.o.Now()
	return s.out.event("", "", s.piece(x, chunkObject, Choice{Delta: &said}))
}

const chunkObject = "chat.completion.chunk"

// finish sends the rest of the answer and how it ended.
func (s *streamed) finish(x *belay.Execution) error {
	a := answerOf(x)
	if a == nil {
		a = &agent.Answer{}
	}
	rest, same := s.told.end(a.Text)
	if !same {
		return s.strayed()
	}
	why := finish(a)
	if len(s.told.text) > 0 {
		why = finish(&agent.Answer{}) // all of it was passed on as it came
	}
	if rest != "" {
		s.delta(x, Spoken{Content: &rest})
	}
	s.out.event("", "", s.piece(x, chunkObject, Choice{Delta: &Spoken{}, FinishReason: why}))
	if o := s.req.StreamOptions; o != nil && o.IncludeUsage {
		last := s.piece(x, chunkObject)
		last.Usage = consumed(a)
		s.out.event("", "", last)
	}
	s.out.send([]byte("data: [DONE]\n\n"))
	return nil
}
