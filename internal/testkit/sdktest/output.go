package sdktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/raced"
	"github.com/belaydev/belay/workflow"
)

// stored reads the stored bytes of a log or artifact.
func (e *env) stored(id belay.ExecutionID, name string) []byte {
	e.Helper()
	var all []byte
	for from := int64(0); ; {
		chunks, err := e.b.Chunks(e.ctx, belay.ChunkQuery{Execution: id, Name: name, From: from})
		if err != nil {
			e.Fatalf("chunks of %s: %v", name, err)
		}
		if len(chunks) == 0 {
			return all
		}
		for _, c := range chunks {
			all = append(all, c.Data...)
			from = c.N + 1
		}
	}
}

// line returns the n-th line of a long log. All lines have the same length.
func line(n int) string { return fmt.Sprintf("%063d\n", n) }

// large marks a case that writes tens of megabytes. Under the race detector such a case takes a
// minute and finds no more faults than a small case, so it is skipped there, and make unit runs it
// without the race detector.
func large(test func(*env)) func(*env) {
	return func(e *env) {
		if raced.On {
			e.Skip("it is large, and runs without the race detector")
		}
		test(e)
	}
}

var output = []testCase{
	{"output is stored soon after it was written", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			log := workflow.Output(ctx, "log")
			if _, err := io.WriteString(log, "hello\n"); err != nil {
				return 0, err
			}
			_, err := work(ctx, "work", time.Minute)
			return 0, errors.Join(err, log.Close())
		}))
		id := e.start(nil)
		e.sleep(time.Second)
		if got := e.stored(id, "log"); string(got) != "hello\n" {
			e.Errorf("stored %q", got)
		}
		want(e, id, 0)
	}},

	{"a later run appends to the log of the run before", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			log := workflow.Output(ctx, "log")
			for i := range 3 {
				if _, err := fmt.Fprintf(log, "%d.%d ", workflow.Attempt(ctx), i); err != nil {
					return 0, err
				}
				if err := log.Flush(); err != nil {
					return 0, err
				}
			}
			if err := log.Close(); err != nil || workflow.Attempt(ctx) > 1 {
				return 0, err
			}
			return 0, errors.New("again")
		}))
		id := e.start(nil)
		want(e, id, 0)
		if got := e.stored(id, "log"); string(got) != "1.0 1.1 1.2 2.0 2.1 2.2 " {
			e.Errorf("stored %q", got)
		}
	}},

	{"the store keeps the head and the tail of a long log, also over several runs", large(func(e *env) {
		const lines, runs = 250_000, 2
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			log := workflow.Output(ctx, "log")
			from := (workflow.Attempt(ctx) - 1) * lines
			for n := from; n < from+lines; n++ {
				if _, err := io.WriteString(log, line(n)); err != nil {
					return 0, err
				}
			}
			if err := log.Close(); err != nil || workflow.Attempt(ctx) == runs {
				return 0, err
			}
			return 0, errors.New("again")
		}))
		id := e.start(nil)
		want(e, id, 0)
		got := e.stored(id, "log")
		if len(got) > belay.MaxLog || len(got) < belay.MaxLog-2*belay.MaxChunk {
			e.Errorf("%d bytes kept", len(got))
		}
		var head, tail strings.Builder
		for n := range 1 << 20 / 64 {
			head.WriteString(line(n))
		}
		for n := lines*runs - 1<<20/64; n < lines*runs; n++ {
			tail.WriteString(line(n))
		}
		if !bytes.HasPrefix(got, []byte(head.String())) {
			e.Error("the first MiB is not kept")
		}
		if !bytes.HasSuffix(got, []byte(tail.String())) {
			e.Error("the last MiB is not kept")
		}
	})},

	{"a chunk whose reply was lost is stored once", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			log := workflow.Output(ctx, "log")
			if _, err := io.WriteString(log, "once"); err != nil {
				return 0, err
			}
			return 0, log.Close()
		}))
		c.wire.on("append", true, 2, func(context.Context, call) error { return errCut })
		id := e.start(nil)
		want(e, id, 0)
		if got := e.stored(id, "log"); string(got) != "once" {
			e.Errorf("stored %q", got)
		}
	}},

	{"an artifact is stored completely and replaced by a later run", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int64, error) {
			content := strings.Repeat(fmt.Sprint(workflow.Attempt(ctx)), belay.MaxChunk+100*workflow.Attempt(ctx))
			n, err := workflow.Artifact(ctx, "result", strings.NewReader(content))
			if err != nil || workflow.Attempt(ctx) == 2 {
				return n, err
			}
			return 0, errors.New("again")
		}))
		id := e.start(nil)
		want(e, id, int64(belay.MaxChunk+200))
		if got := e.stored(id, "result"); string(got) != strings.Repeat("2", belay.MaxChunk+200) {
			e.Errorf("%d bytes stored, beginning with %.10q", len(got), got)
		}
	}},

	{"a run may replace its own artifact any number of times", large(func(e *env) {
		content := func(n int) string { return strings.Repeat(fmt.Sprint(n), belay.MaxArtifact*3/4) }
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			for n := range 3 { // two artifacts of this size together would exceed the limit
				if _, err := workflow.Artifact(ctx, "work", strings.NewReader(content(n))); err != nil {
					return 0, err
				}
			}
			got, err := workflow.ReadArtifact(ctx, "work")
			return len(got), err
		}))
		id := e.start(nil)
		want(e, id, belay.MaxArtifact*3/4)
		if got := e.stored(id, "work"); string(got) != content(2) {
			e.Errorf("%d bytes stored", len(got))
		}
	})},

	{"an artifact beyond the limit is refused with an error that names the limit", large(func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int64, error) {
			return workflow.Artifact(ctx, "huge", io.LimitReader(zeros{}, belay.MaxArtifact+1))
		}))
		ended := wantEnd(e, e.start(nil), belay.Failed, fmt.Sprint(belay.MaxArtifact))
		if ended.Failure.Class != belay.ClassPermanent {
			e.Errorf("class %s", ended.Failure.Class)
		}
	})},

	{"output counts as progress", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			log := workflow.Output(ctx, "log")
			for range 10 {
				if _, err := io.WriteString(log, "still here\n"); err != nil {
					return 0, err
				}
				select {
				case <-time.After(30 * time.Second):
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
			}
			return 0, log.Close()
		}))
		want(e, e.start(nil, belay.WithPolicy(belay.Policy{IdleTimeout: belay.Duration(time.Minute), MaxAttempts: 1})),
			0)
	}},
}

// zeros is a reader that never ends and reads only zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
