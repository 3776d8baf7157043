// Command openai checks with OpenAI's own client for Go that a server behaves as users of that
// client expect. The server's agent is the agent of examples/agent-service, with structured output.
// The argument is the server's address.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: openai URL")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := check(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "openai:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and the context with it
	}
}

func check(ctx context.Context, url string) error {
	c := openai.NewClient(option.WithBaseURL(url+"/v1/"), option.WithAPIKey("none needed"), option.WithMaxRetries(0))
	for _, part := range []struct {
		name string
		run  func(context.Context, openai.Client) error
	}{
		{"models", models}, {"answer", answer}, {"stream", stream}, {"failure", failure},
		{"failure in a stream", failureInStream}, {"key", key}, {"response", response},
		{"streamed response", streamedResponse}, {"failed response", failedResponse},
		{"refused response", refusedResponse}, {"aborted response", abortedResponse},
		{"response with a key", keyedResponse},
	} {
		if err := part.run(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Println("ok", part.name)
	}
	return nil
}

func asking(prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: "gpt-whatever",
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("be brief"), openai.UserMessage("\n" + prompt + "\n"),
		},
	}
}

func models(ctx context.Context, c openai.Client) error {
	page, err := c.Models.List(ctx)
	if err != nil {
		return err
	}
	if len(page.Data) != 1 || page.Data[0].ID == "" {
		return fmt.Errorf("got %+v", page.Data)
	}
	return nil
}

func answer(ctx context.Context, c openai.Client) error {
	var raw *http.Response
	got, err := c.Chat.Completions.New(ctx, asking("hello"), option.WithResponseInto(&raw))
	if err != nil {
		return err
	}
	choice := got.Choices[0]
	// The prompt ends with the line that marks the end of the user's message, and the agent returns
	// that line.
	if choice.Message.Content != "</message>" || choice.FinishReason != "stop" || got.Model != "gpt-whatever" {
		return fmt.Errorf("got %+v", got)
	}
	if u := got.Usage; u.PromptTokens != 100 || u.CompletionTokens != 7 || u.TotalTokens != 107 {
		return fmt.Errorf("the usage is %+v", u)
	}
	if raw.Header.Get("X-Execution-Id") == "" {
		return errors.New("there is no X-Execution-Id")
	}
	return nil
}

func stream(ctx context.Context, c openai.Client) error {
	p := asking("sleep 1\nhello")
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	s := c.Chat.Completions.NewStreaming(ctx, p)
	var all openai.ChatCompletionAccumulator
	pieces := 0
	for s.Next() {
		if c := s.Current().Choices; len(c) > 0 && c[0].Delta.Content != "" {
			pieces++
		}
		if !all.AddChunk(s.Current()) {
			return fmt.Errorf("a chunk does not fit: %+v", s.Current())
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	// The stream contains the whole output of the agent, in at least two pieces, because the agent
	// sleeps for a second in the middle of its output.
	said := strings.Join([]string{
		`<message role="system">`, "be brief", "</message>", `<message role="user">`, "hello", "</message>",
	}, "\n\n")
	if len(all.Choices) != 1 || all.Choices[0].Message.Content != said || pieces < 2 ||
		all.Choices[0].FinishReason != "stop" || all.Usage.TotalTokens != 107 {
		return fmt.Errorf("got %+v", all.ChatCompletion)
	}
	return nil
}

func failure(ctx context.Context, c openai.Client) error {
	_, err := c.Chat.Completions.New(ctx, asking("fail 3"))
	var refused *openai.Error
	if !errors.As(err, &refused) {
		return fmt.Errorf("got %w", err)
	}
	if refused.StatusCode != http.StatusUnprocessableEntity || refused.Code != "agent_failed" || refused.Message == "" {
		return fmt.Errorf("got %d %s %s", refused.StatusCode, refused.Type, refused.Message)
	}
	return nil
}

func failureInStream(ctx context.Context, c openai.Client) error {
	s := c.Chat.Completions.NewStreaming(ctx, asking("fail 3"))
	for s.Next() {
		if len(s.Current().Choices) == 0 {
			return fmt.Errorf("got %+v", s.Current())
		}
	}
	if s.Err() == nil {
		return errors.New("the stream ended without an error")
	}
	return nil
}

// key makes two requests under one key and checks that they belong to one execution.
func key(ctx context.Context, c openai.Client) error {
	var first, second *http.Response
	for _, raw := range []**http.Response{&first, &second} {
		if _, err := c.Chat.Completions.New(ctx, asking("hello"), option.WithHeader("Idempotency-Key", "one"),
			option.WithResponseInto(raw)); err != nil {
			return err
		}
	}
	if a, b := first.Header.Get("X-Execution-Id"), second.Header.Get("X-Execution-Id"); a == "" || a != b {
		return fmt.Errorf("answered by %s and %s", a, b)
	}
	return nil
}
