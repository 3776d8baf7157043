package webui

import (
	"context"
	"strings"

	"github.com/belaydev/belay"
)

// tailChunks and tailBytes bound the part of a log that a page shows.
const (
	tailChunks = 64
	tailBytes  = 32 << 10
	outputLog  = "output" // the log of a command
)

// logTail is the end of a log.
type logTail struct {
	Text string
	Cut  bool // the log has earlier text that is not shown
}

// tail reads the end of the log; nil if the execution has no log. Chunks are numbered from 0, and
// chunks in the middle may be missing, so tail first searches for the number of the last chunk. For
// a log of n chunks, this search reads about 2·log n single chunks.
func (p *pages) tail(ctx context.Context, id belay.ExecutionID) (*logTail, error) {
	from := func(n int64, limit int) ([]belay.StoredChunk, error) {
		return p.backend.Chunks(ctx, belay.ChunkQuery{Execution: id, Name: outputLog, From: n, Limit: limit})
	}
	last, err := lastChunk(from)
	if err != nil || last < 0 {
		return nil, err
	}
	var text []byte
	begin := last + 1
	for begin > max(0, last+1-tailChunks) && len(text) < tailBytes { // one chunk per read, because each may be large
		chunks, err := from(begin-1, 1)
		if err != nil {
			return nil, err
		}
		if len(chunks) == 0 || chunks[0].N != begin-1 { // earlier chunks, in the middle of the log, are missing
			break
		}
		begin--
		data := chunks[0].Data
		// The text has one byte more than the page shows, so that the code below cuts its first line.
		text = append(append([]byte(nil), data[max(0, len(data)-tailBytes-1):]...), text...)
	}
	t := &logTail{Text: string(text), Cut: begin > 0}
	if len(t.Text) > tailBytes {
		t.Text, t.Cut = t.Text[len(t.Text)-tailBytes:], true
		if _, rest, ok := strings.Cut(t.Text, "\n"); ok {
			t.Text = rest
		}
	}
	t.Text = terminal(t.Text)
	return t, nil
}

// lastChunk returns the number of the last chunk, -1 if there is none. It uses an exponential
// search: it doubles the step until it finds no chunk, and then halves the step.
func lastChunk(from func(n int64, limit int) ([]belay.StoredChunk, error)) (int64, error) {
	last, step, growing := int64(-1), int64(1), true
	for {
		chunks, err := from(last+step, 1)
		if err != nil {
			return 0, err
		}
		if len(chunks) > 0 {
			if last = chunks[0].N; growing {
				step *= 2
			}
			continue
		}
		if step == 1 {
			return last, nil
		}
		step, growing = step/2, false
	}
}
