// Command session uses a client that oapi-codegen made from the OpenAPI document: it submits an
// execution, watches its events until it has ended, reads it, and chats with the agent, first with
// one answer and then with a stream. Its argument is the server's address.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/belaydev/belay/test/openapi/gen"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := session(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "session:", err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func session(ctx context.Context, url string) error {
	c, err := gen.NewClientWithResponses(url)
	if err != nil {
		return err
	}
	var input any = map[string]any{"n": 1}
	workflow, key := "w", "one"
	submitted, err := c.SubmitWithResponse(ctx, &gen.SubmitParams{IdempotencyKey: &key}, gen.Submit{
		Workflow: &workflow, Input: &input,
	})
	if err != nil || submitted.JSON201 == nil {
		return fmt.Errorf("submit: %w %s", err, submitted.Body)
	}
	id := submitted.JSON201.Id
	ended := make(chan error, 1)
	go func() { ended <- watch(ctx, c, id) }()
	reason := "enough"
	cancelled, err := c.CancelWithResponse(ctx, id, nil, gen.Act{Reason: &reason})
	if err != nil || cancelled.JSON200 == nil {
		return fmt.Errorf("cancel: %w", err)
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	got, err := c.GetExecutionWithResponse(ctx, id, nil)
	if err != nil || got.JSON200.State != gen.ExecutionDetailState("cancelled") {
		return fmt.Errorf("read: %w %s", err, got.Body)
	}
	const unknown = "ex_0000000000000000000000000b"
	if none, err := c.GetExecutionWithResponse(ctx, unknown, nil); err != nil || none.ApplicationproblemJSON404 == nil {
		return fmt.Errorf("read an unknown execution: %w %s", err, none.Body)
	}
	return chat(ctx, c)
}

// watch follows the events of an execution until its end.
func watch(ctx context.Context, c *gen.ClientWithResponses, id string) error {
	stream, err := c.Events(ctx, id, nil)
	if err != nil {
		return err
	}
	var seqs []int64
	for name, data := range events(stream) {
		switch name {
		case "snapshot":
			var x gen.Execution
			if err := json.Unmarshal(data, &x); err != nil || x.Id != id {
				return fmt.Errorf("the snapshot: %w %s", err, data)
			}
		case "event":
			var e gen.Event
			if err := json.Unmarshal(data, &e); err != nil {
				return err
			}
			seqs = append(seqs, e.Seq)
		case "end":
			if len(seqs) != 2 || seqs[0] != 1 || seqs[1] != 2 {
				return fmt.Errorf("events %v", seqs)
			}
			return nil
		}
	}
	return errors.New("no end")
}

// events yields the name and the data of each event of a stream.
func events(from *http.Response) func(func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		defer from.Body.Close()
		name := ""
		for lines := bufio.NewScanner(from.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				name = value
			case "data":
				if !yield(name, []byte(value)) {
					return
				}
			}
		}
	}
}

func chat(ctx context.Context, c *gen.ClientWithResponses) error {
	request := gen.ChatRequest{Messages: []gen.ChatMessage{{Role: "user", Content: "say hello"}}}
	whole, err := c.ChatWithResponse(ctx, nil, request)
	if err != nil || whole.JSON200 == nil {
		return fmt.Errorf("chat: %w %s", err, whole.Body)
	}
	said := *whole.JSON200.Choices[0].Message.Content
	if !strings.Contains(said, "hello") || whole.HTTPResponse.Header.Get("X-Execution-Id") == "" {
		return fmt.Errorf("the answer is %q", said)
	}
	yes := true
	request.Stream = &yes
	stream, err := c.Chat(ctx, nil, request)
	if err != nil {
		return err
	}
	var pieces strings.Builder
	for _, data := range events(stream) {
		if string(data) == "[DONE]" {
			break
		}
		var piece gen.Completion
		if err := json.Unmarshal(data, &piece); err != nil {
			return err
		}
		for _, choice := range piece.Choices {
			if choice.Delta.Content != nil {
				_, _ = io.WriteString(&pieces, *choice.Delta.Content)
			}
		}
	}
	if pieces.String() != said {
		return fmt.Errorf("in pieces it is %q, whole %q", pieces.String(), said)
	}
	wrong, err := c.ChatWithResponse(ctx, nil, gen.ChatRequest{Messages: []gen.ChatMessage{}})
	if err != nil || wrong.JSON400 == nil || *wrong.JSON400.Error.Param != "messages" {
		return fmt.Errorf("a chat without messages: %w %s", err, wrong.Body)
	}
	return nil
}
