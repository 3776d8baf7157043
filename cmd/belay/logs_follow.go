package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/belaydev/belay"
)

// logPause is how long belay logs --follow waits for an event before it looks for more output.
const logPause = time.Second

// copyLog writes a log to w, and with follow also what the execution writes until it ends.
func (a *app) copyLog(ctx context.Context, w io.Writer, r reader, id belay.ExecutionID, name string, follow bool,
) error {
	if !follow {
		return copyChunks(ctx, w, r, id, name)
	}
	var away outage
	l := logCopy{w: w, r: r, id: id, name: name}
	for {
		e, err := r.Execution(ctx, id) // before the output, so that no output of an ended execution is missing
		if err == nil {
			err = l.copy(ctx)
		}
		if err == nil && e.State.Terminal() {
			return l.missing()
		}
		if err == nil {
			_, err = r.Events(ctx, belay.EventQuery{Execution: id, After: e.Seq, Limit: 1, Wait: logPause})
		}
		switch {
		case ctx.Err() != nil:
			return exitCode(130)
		case err == nil:
			away = outage{}
		case l.failed != nil || !a.retryLater(ctx, &away, err):
			return err
		}
	}
}

// logCopy writes the chunks of a log or artifact.
type logCopy struct {
	w      io.Writer
	r      reader
	id     belay.ExecutionID
	name   string
	next   int64     // the number of the next chunk
	at     time.Time // when the chunk that is being written was stored
	found  bool
	failed error // the error of w
}

// copyChunks writes a log or artifact to w.
func copyChunks(ctx context.Context, w io.Writer, r reader, id belay.ExecutionID, name string) error {
	l := logCopy{w: w, r: r, id: id, name: name}
	if err := l.copy(ctx); err != nil {
		return err
	}
	return l.missing()
}

// missing returns an error if the execution has no log of the name.
func (l *logCopy) missing() error {
	if l.found {
		return nil
	}
	return &belay.Error{
		Code: belay.CodeNotFound, Message: "execution " + l.id.String() + " has no log or artifact of the name " +
			quoted(l.name),
	}
}

// copy writes the chunks that were not written yet. If chunks in the middle of a long log are missing, because the
// store dropped them, copy writes a line with their number. The store never drops the beginning of a log. So if the
// first chunk has a number above zero, no chunk is missing before it: this artifact has replaced an earlier artifact,
// whose chunks had the lower numbers.
func (l *logCopy) copy(ctx context.Context) error {
	for {
		chunks, err := l.r.Chunks(ctx, belay.ChunkQuery{Execution: l.id, Name: l.name, From: l.next})
		if err != nil || len(chunks) == 0 {
			return err
		}
		l.found = true
		for _, k := range chunks {
			if k.N != l.next && l.next > 0 {
				fmt.Fprintf(l.w, "\n… %d chunks of the middle were not kept …\n", k.N-l.next)
			}
			l.at = k.At
			if _, err := l.w.Write(k.Data); err != nil {
				l.failed = err
				return err
			}
			l.next = k.N + 1
		}
	}
}
