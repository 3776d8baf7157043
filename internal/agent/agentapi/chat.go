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

// chat is one chat request and its job.
type chat struct {
	*endpoint
	r     *http.Request
	w     http.ResponseWriter
	req   ChatRequest
	id    belay.ExecutionID
	keyed bool
	over  time.Time // the deadline of the chat: its start plus ChatTimeout
}

func (d *endpoint) chat(w http.ResponseWriter, r *http.Request) {
	c := &chat{endpoint: d, r: r, w: w, over: d.o.Now().Add(d.o.ChatTimeout)}
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

// acceptTime is the time limit for storing the job of a chat.
const acceptTime = 30 * time.Second

// startSlack is how much later than ChatTimeout the store ends the job of a chat that has not
// started. Normally this server cancels the job before, at the end of ChatTimeout; the store ends
// the job if this server has died.
const startSlack = 10 * time.Second

// begin stores the job of a chat. If an earlier request with the same Idempotency-Key has stored a
// job, begin finds that job instead.
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
	if !c.keyed { // without an Idempotency-Key no other request can get the answer
		policy.OnLost, policy.StartTimeout = belay.Fail, belay.Duration(c.o.ChatTimeout+startSlack)
	}
	// If the caller disconnects, the job is stored nevertheless, so that the server learns the id of
	// the job and can cancel it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), acceptTime)
	defer cancel()
	got, err := c.accept(ctx, p, key, policy, nil, nil)
	if err == nil && got.Replayed {
		c.w.Header().Set("Idempotency-Replayed", "true")
	}
	c.id = got.ID
	return err
}

// end waits until the job has ended or ChatTimeout is over.
func (c *chat) end(ctx context.Context) (*belay.Execution, error) {
	for {
		left := c.over.Sub(c.o.Now())
		if left <= 0 {
			return nil, c.late()
		}
		x, err := c.b.Await(ctx, c.id, min(left, wire.MaxWait))
		if err != nil {
			return nil, c.disconnected(ctx, err)
		}
		if x.State.Terminal() {
			x, err = c.b.Execution(ctx, c.id)
			return &x, err
		}
	}
}

// late returns the error for a chat that took longer than ChatTimeout.
func (c *chat) late() error {
	message := "the chat took longer than " + c.o.ChatTimeout.String()
	if c.keyed {
		message += "; its job continues: send the request again with the same Idempotency-Key"
	} else {
		c.noRetry()
		c.drop(c.r.Context(), c.id, message)
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: message, RetryAfter: retryAfter}
}

// noRetry makes OpenAI's clients not repeat the request after a 503, because a repeated request
// would start another job or get the same error.
func (c *chat) noRetry() { c.w.Header().Set("X-Should-Retry", "false") }

// disconnected returns the error for a chat that this server cannot answer: the caller has
// disconnected, the server stops, or the job cannot be read from the store.
func (c *chat) disconnected(ctx context.Context, err error) error {
	why := "its caller has disconnected"
	switch {
	case c.stops():
		why = "the server stops and cannot answer its caller"
	case ctx.Err() == nil:
		why = "its caller got an error"
	}
	if !c.keyed {
		c.drop(ctx, c.id, why)
	}
	if ctx.Err() == nil {
		return err
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: "the server stops; try again", RetryAfter: time.Second}
}

// failure returns the error for a job that did not succeed. The HTTP status is always 503, because
// clients of chats expect that status.
func (c *chat) failure(x *belay.Execution) error {
	status := Status(x, answerOf(x))
	if status == Completed {
		return nil
	}
	c.noRetry()
	return &belay.Error{Code: belay.CodeUnavailable, Message: "the agent did not answer (" + status + "): " + reason(x),
		RetryAfter: retryAfter}
}

func (c *chat) completion(x *belay.Execution, a *agent.Answer) *Completion {
	done := c.piece(x, "chat.completion", Choice{Message: &Spoken{"assistant", &a.Text}, FinishReason: finish(a)})
	done.Usage = consumed(a)
	return done
}

// piece returns a response that contains a whole answer, or a part of a streamed answer.
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
