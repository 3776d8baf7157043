package agentapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/wire"
)

// format is a format of OpenAI's API for requests and their answers: chat completions or responses.
type format interface {
	// read reads a request.
	read(s *Service, r *http.Request) (inquiry, error)
	// whole returns the body of an answer that is not streamed.
	whole(x *belay.Execution, a *agent.Answer) any
	// begin, say and end return the events of a stream: its beginning, a part of the answer's text, and its end.
	begin(x *belay.Execution) []event
	say(x *belay.Execution, text string) []event
	end(x *belay.Execution, a *agent.Answer, t told) []event
	// fail returns the last events of a stream that an error ends.
	fail(x *belay.Execution, f ChatFault) []event
}

// inquiry is the content of a request in a format of OpenAI's API.
type inquiry struct {
	prompt   string
	metadata json.RawMessage
	stream   bool
}

// event is an event of a stream: a JSON value, or a word.
type event struct {
	name string
	data any
	word string
}

// told is the text that a stream has sent.
type told struct {
	text string
	cut  bool // the stream has sent only the end of the answer
	long bool // the stream has sent more than text, which is the beginning of it
}

// chat is one request in a format of OpenAI's API, and its job.
type chat struct {
	*endpoint
	r     *http.Request
	w     http.ResponseWriter
	form  format
	id    belay.ExecutionID
	keyed bool
	over  time.Time // the deadline of the chat: its start plus ChatTimeout
}

func (d *endpoint) complete(w http.ResponseWriter, r *http.Request) {
	d.chat(w, r, &completions{agent: d.o.Model})
}

func (d *endpoint) respond(w http.ResponseWriter, r *http.Request) {
	d.chat(w, r, &responses{agent: d.o.Model})
}

func (d *endpoint) chat(w http.ResponseWriter, r *http.Request, form format) {
	c := &chat{endpoint: d, r: r, w: w, form: form, over: d.o.Now().Add(d.o.ChatTimeout)}
	q, err := c.begin()
	if err != nil {
		c.refuse(err)
		return
	}
	w.Header().Set("X-Execution-Id", c.id.String())
	ctx, done := d.waiting(r.Context())
	defer done()
	if q.stream {
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
	reply(w, http.StatusOK, form.whole(x, said(x)))
}

// said returns the answer of an agent that succeeded.
func said(x *belay.Execution) *agent.Answer {
	if a := answerOf(x); a != nil {
		return a
	}
	return &agent.Answer{}
}

// acceptTime is the time limit for storing the job of a chat.
const acceptTime = 30 * time.Second

// startSlack is how much later than ChatTimeout the store ends the job of a chat that has not
// started. Normally this server cancels the job before, at the end of ChatTimeout; the store ends
// the job if this server has died.
const startSlack = 10 * time.Second

// begin stores the job of a chat. If an earlier request with the same Idempotency-Key has stored a
// job, begin finds that job instead.
func (c *chat) begin() (inquiry, error) {
	q, err := c.form.read(c.Service, c.r)
	if err != nil {
		return q, err
	}
	p := agent.Prompt{
		Text: q.prompt, Repo: c.o.Setup.Repo, Timeout: belay.Duration(c.o.Setup.Timeout), Chat: true, Stream: q.stream,
		Metadata: q.metadata,
	}
	key := c.r.Header.Get("Idempotency-Key")
	if err := cmp.Or(c.o.Setup.Check(&p), checkKey(key)); err != nil {
		return q, err
	}
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
	return q, err
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
	if !c.keyed { // a repeated request would start the agent from the beginning
		c.noRetry()
		c.drop(c.r.Context(), c.id, message)
		return agentFailure(message)
	}
	message += "; its job continues: send the request again with the same Idempotency-Key"
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

// agentFailed is the code of the error of a chat whose agent did not succeed. The clients of OpenAI's API do not
// repeat a request by themselves after the status 422, or after an error of this type in a stream, even those that
// ignore the header X-Should-Retry: a repeated request would run the agent again.
const agentFailed belay.Code = "agent_failed"

// agentFailure is the error of a chat whose agent did not succeed.
type agentFailure string

// Error returns why the agent did not succeed.
func (e agentFailure) Error() string { return string(e) }

// failure returns the error for a job that did not succeed.
func (c *chat) failure(x *belay.Execution) error {
	status := Status(x, answerOf(x))
	if status == Completed {
		return nil
	}
	c.noRetry()
	return agentFailure("the agent did not answer (" + status + "): " + reason(x))
}

// problem converts the error of a chat to the body of an error response.
func (c *chat) problem(err error) wire.Problem {
	var failed agentFailure
	if errors.As(err, &failed) {
		return wire.Problem{Status: http.StatusUnprocessableEntity, Code: agentFailed, Detail: string(failed)}
	}
	return c.Service.problem(c.r, err)
}
