package agentapi

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/wire"
)

// chat is one chat and the job that answers it.
type chat struct {
	*door
	r     *http.Request
	w     http.ResponseWriter
	req   ChatRequest
	id    belay.ExecutionID
	keyed bool
	over  time.Time // when the caller has waited for long enough
}

func (d *door) chat(w http.ResponseWriter, r *http.Request) {
	c := &chat{door: d, r: r, w: w, over: d.o.Now().Add(d.o.ChatTimeout)}
	if err := c.begin(); err != nil {
		c.refuse(err)
		return
	}
	w.Header().Set("X-Execution-Id", c.id.String())
	ctx, done := d.waiting(r.Context())
	defer done()
	if c.req.Stream {
		c.stream(ctx)
		return
	}
	x, err := c.end(ctx)
	if err == nil {
		err = c.failure(x)
	}
	if err != nil {
		c.refuse(err)
		return
	}
	a := answerOf(x)
	if a == nil {
		a = &agent.Answer{}
	}
	reply(w, http.StatusOK, c.completion(x, a))
}

// acceptTime is how long the store may take to accept a chat.
const acceptTime = 30 * time.Second

// startSlack is how much later than the caller the store gives up a chat that has
// not started: normally the caller's end cancels it.
const startSlack = 10 * time.Second

// begin makes the chat a job, or joins the one that was made under its key.
func (c *chat) begin() error {
	if err := decode(c.r, false, &c.req); err != nil {
		return err
	}
	text, err := c.req.prompt()
	if err != nil {
		return err
	}
	p := agent.Prompt{
		Text: text, Repo: c.o.Setup.Repo, Timeout: belay.Duration(c.o.Setup.Timeout), Chat: true, Stream: c.req.Stream,
	}
	if err := c.o.Setup.Check(&p); err != nil {
		return err
	}
	key := c.r.Header.Get("Idempotency-Key")
	c.keyed = key != ""
	policy := c.o.Policy
	if !c.keyed { // a job that dies with its caller
		policy.OnLost, policy.StartTimeout = belay.Fail, belay.Duration(c.o.ChatTimeout+startSlack)
	}
	// Of a caller that goes meanwhile the job is known, to be cancelled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), acceptTime)
	defer cancel()
	got, err := c.accept(ctx, p, key, policy)
	if err == nil && got.Replayed {
		c.w.Header().Set("Idempotency-Replayed", "true")
	}
	c.id = got.ID
	return err
}

// end waits for the end of the job, for as long as the caller does.
func (c *chat) end(ctx context.Context) (*belay.Execution, error) {
	for {
		left := c.over.Sub(c.o.Now())
		if left <= 0 {
			return nil, c.late()
		}
		x, err := c.b.Await(ctx, c.id, min(left, wire.MaxWait))
		if err != nil {
			return nil, c.gone(ctx, err)
		}
		if x.State.Terminal() {
			x, err = c.b.Execution(ctx, c.id)
			return &x, err
		}
	}
}

// late is the end of a chat whose time is over.
func (c *chat) late() error {
	message := "the chat took longer than " + c.o.ChatTimeout.String()
	if c.keyed {
		message += "; its job goes on: ask again with the same Idempotency-Key"
	} else {
		c.once()
		c.drop(c.r.Context(), c.id, message)
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: message, RetryAfter: retryAfter}
}

// once tells OpenAI's clients, which ask again by themselves where they get a 503,
// that this would be another job with the same end, or the same one.
func (c *chat) once() { c.w.Header().Set("X-Should-Retry", "false") }

// gone is the end of a chat whose caller has gone, whose server stops, or whose
// store cannot be asked.
func (c *chat) gone(ctx context.Context, err error) error {
	why := "its caller has gone"
	switch {
	case c.stops():
		why = "the server stops, and its caller cannot be answered"
	case ctx.Err() == nil:
		why = "its caller was answered with an error"
	}
	if !c.keyed {
		c.drop(ctx, c.id, why)
	}
	if ctx.Err() == nil {
		return err
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: "the server stops; ask again", RetryAfter: time.Second}
}

// failure is the error of a job that did not end well: callers of a chat expect
// 503 whatever the reason.
func (c *chat) failure(x *belay.Execution) error {
	status := Status(x, answerOf(x))
	if status == Completed {
		return nil
	}
	c.once()
	return &belay.Error{Code: belay.CodeUnavailable, Message: "the agent did not answer (" + status + "): " + reason(x),
		RetryAfter: retryAfter}
}

func (c *chat) completion(x *belay.Execution, a *agent.Answer) *Completion {
	done := c.piece(x, "chat.completion", Choice{Message: &Spoken{"assistant", &a.Text}, FinishReason: finish(a)})
	done.Usage = consumed(a)
	return done
}

// piece is an answer, or a piece of one.
func (c *chat) piece(x *belay.Execution, object string, choices ...Choice) *Completion {
	if choices == nil {
		choices = []Choice{}
	}
	return &Completion{
		ID: "chatcmpl-" + c.id.String(), Object: object, Created: x.CreatedAt.Unix(), Model: cmp.Or(c.req.Model,
			c.o.Model), Choices: choices,
	}
}

func finish(a *agent.Answer) *string {
	why := "stop"
	if a.Cut {
		why = "length"
	}
	return &why
}

func consumed(a *agent.Answer) *Consumed {
	var u Consumed
	if a.Usage != nil {
		u = Consumed{a.Usage.InputTokens, a.Usage.OutputTokens, a.Usage.Total()}
	}
	return &u
}
