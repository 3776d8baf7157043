package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

func inputOf(prompt string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "gpt-whatever", Metadata: shared.Metadata{"ticket": "7"},
		Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(prompt)},
	}
}

func response(ctx context.Context, c openai.Client) error {
	got, err := c.Responses.New(ctx, inputOf("one\nhello"))
	if err != nil {
		return err
	}
	if got.OutputText() != "hello" || got.Status != "completed" || got.Model != "gpt-whatever" ||
		got.Metadata["ticket"] != "7" || got.Usage.TotalTokens != 107 || got.Usage.InputTokens != 100 {
		return fmt.Errorf("got %s", got.RawJSON())
	}
	again, err := c.Responses.Get(ctx, got.ID, responses.ResponseGetParams{})
	if err != nil {
		return err
	}
	if again.OutputText() != "hello" {
		return fmt.Errorf("read again: %s", again.RawJSON())
	}
	return nil
}

func streamedResponse(ctx context.Context, c openai.Client) error {
	s := c.Responses.NewStreaming(ctx, inputOf("one\nsleep 1\nhello"))
	said, pieces, next := "", 0, int64(0)
	var last responses.ResponseStreamEventUnion
	for ; s.Next(); next++ {
		if last = s.Current(); last.SequenceNumber != next {
			return fmt.Errorf("event %d has the number %d", next, last.SequenceNumber)
		}
		if last.Type == "response.output_text.delta" {
			said += last.Delta
			pieces++
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	if said != "one\n\nhello" || pieces < 2 || last.Type != "response.completed" ||
		last.Response.OutputText() != said || last.Response.Usage.TotalTokens != 107 {
		return fmt.Errorf("got %q in %d pieces, and at last %s", said, pieces, last.RawJSON())
	}
	return nil
}

func failedResponse(ctx context.Context, c openai.Client) error {
	requests := 0
	count := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		requests++
		got, err := next(r)
		if err == nil {
			got.Header.Del("X-Should-Retry") // as for clients that ignore this header
		}
		return got, err
	})
	_, err := c.Responses.New(ctx, inputOf("fail 3"), option.WithMaxRetries(2), count)
	if err := refusedWith(err, http.StatusUnprocessableEntity, "agent_failed", ""); err != nil {
		return err
	}
	if requests != 1 {
		return fmt.Errorf("the client sent %d requests", requests)
	}
	s := c.Responses.NewStreaming(ctx, inputOf("one\nfail 3"), option.WithMaxRetries(2), count)
	var last responses.ResponseStreamEventUnion
	for s.Next() {
		last = s.Current()
	}
	if requests != 2 || last.Type != "response.failed" || last.Response.Error.Code != "agent_failed" {
		return fmt.Errorf("%d requests, and at last %s", requests, last.RawJSON())
	}
	return s.Err()
}

func refusedWith(err error, status int, code, field string) error {
	var refused *openai.Error
	if !errors.As(err, &refused) {
		return fmt.Errorf("got %w", err)
	}
	if refused.StatusCode != status || refused.Code != code || refused.Param != field || refused.Message == "" {
		return fmt.Errorf("got %d %s", refused.StatusCode, refused.RawJSON())
	}
	return nil
}

func refusedResponse(ctx context.Context, c openai.Client) error {
	p := inputOf("hello")
	p.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "f"}}}
	_, err := c.Responses.New(ctx, p)
	if err := refusedWith(err, http.StatusBadRequest, "invalid", "tools"); err != nil {
		return err
	}
	_, err = c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "m"})
	return refusedWith(err, http.StatusNotFound, "not_found", "")
}

// abortedResponse leaves a stream, and checks that the server cancels the job.
func abortedResponse(ctx context.Context, c openai.Client) error {
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	s := c.Responses.NewStreaming(leaving, inputOf("one\nuntil never"))
	id := ""
	for s.Next() {
		switch e := s.Current(); e.Type {
		case "response.created":
			id = e.Response.ID
		case "response.output_text.delta":
			leave()
		}
	}
	for {
		got, err := c.Responses.Get(ctx, id, responses.ResponseGetParams{})
		if err != nil || got.Status == responses.ResponseStatusCancelled {
			return err
		}
	}
}

func keyedResponse(ctx context.Context, c openai.Client) error {
	key := option.WithHeader("Idempotency-Key", "two")
	first, err := c.Responses.New(ctx, inputOf("hello"), key)
	if err != nil {
		return err
	}
	s := c.Responses.NewStreaming(ctx, inputOf("hello"), key)
	var last responses.ResponseStreamEventUnion
	for s.Next() {
		last = s.Current()
	}
	if last.Response.ID != first.ID || last.Response.OutputText() != "hello" {
		return fmt.Errorf("%s, and then %s", first.RawJSON(), last.RawJSON())
	}
	return s.Err()
}
