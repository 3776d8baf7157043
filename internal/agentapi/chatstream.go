package agentapi

import (
	"context"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// streamed is a chat that is answered as the answer comes. Plain output is passed
// on as the agent writes it; structured output has its answer at the end.
type streamed struct {
	*chat
	out  *stream
	from int64 // the next chunk
	text held
	sent strings.Builder
	last time.Time // when something was written
}

// stream answers in pieces. Its status is sent before the job has a slot, so that
// there can be pings: what fails after that is an error in the stream.
func (c *chat) stream(ctx context.Context) {
	s := &streamed{chat: c, out: c.Service.stream(c.w), last: c.o.Now()}
	x, err := s.run(ctx)
	if err == nil {
		err = failureOf(x)
	}
	if err == nil {
		s.finish(x)
		return
	}
	p := c.problem(c.r, err)
	s.out.event("", "", faultOf(p))
}

// run passes on what the agent writes until the job has ended.
func (s *streamed) run(ctx context.Context) (*belay.Execution, error) {
	x, err := s.b.Execution(ctx, s.id)
	if err != nil {
		return nil, s.gone(ctx, err)
	}
	empty := ""
	if !s.delta(&x, Spoken{"assistant", &empty}) {
		return nil, s.left(ctx)
	}
	for {
		now, err := s.b.Await(ctx, s.id, look)
		if err != nil {
			return nil, s.gone(ctx, err)
		}
		if ok, err := s.more(ctx, &x); err != nil || !ok {
			if err == nil {
				err = s.left(ctx)
			}
			return nil, err
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

// more passes on what came since.
func (s *streamed) more(ctx context.Context, x *belay.Execution) (ok bool, err error) {
	ok = true
	err = s.chunks(ctx, s.id, agent.AnswerLog, s.from, func(c belay.StoredChunk) bool {
		s.from = c.N + 1
		text := s.text.take(c.Data)
		s.sent.WriteString(text)
		ok = s.delta(x, Spoken{Content: &text})
		return ok
	})
	return ok, err
}

func (s *streamed) delta(x *belay.Execution, said Spoken) bool {
	s.last = s.o.Now()
	return s.out.event("", "", s.piece(x, chunkObject, Choice{Delta: &said}))
}

const chunkObject = "chat.completion.chunk"

// finish sends the rest of the answer and how it ended.
func (s *streamed) finish(x *belay.Execution) {
	a := answerOf(x)
	if a == nil {
		a = &agent.Answer{}
	}
	if rest, ok := strings.CutPrefix(a.Text, s.sent.String()); ok && rest != "" {
		s.delta(x, Spoken{Content: &rest})
	}
	s.out.event("", "", s.piece(x, chunkObject, Choice{Delta: &Spoken{}, FinishReason: finish(a)}))
	if o := s.req.StreamOptions; o != nil && o.IncludeUsage {
		last := s.piece(x, chunkObject)
		last.Usage = consumed(a)
		s.out.event("", "", last)
	}
	s.out.send([]byte("data: [DONE]\n\n"))
}
