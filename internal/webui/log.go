package webui

import (
	"context"
	"slices"
	"strings"
	"time"

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
	// chunks are the parts of the text with the times at which they were stored.
	chunks []logChunk
}

type logChunk struct {
	at   time.Time
	data []byte
}

// tail reads the end of the log of a command; nil if the execution has no log.
func (p *pages) tail(ctx context.Context, id belay.ExecutionID) (*logTail, error) {
	t, err := p.tailOf(ctx, id, outputLog, tailBytes)
	if t != nil {
		t.Text = terminal(t.Text)
	}
	return t, err
}

// tailOf reads the end of a log as it was written, at most so many bytes; nil if the execution has no such log. Chunks
// are numbered from 0, and chunks in the middle may be missing, so tailOf first searches for the number of the last
// chunk. For a log of n chunks, this search reads about 2·log n single chunks.
func (p *pages) tailOf(ctx context.Context, id belay.ExecutionID, name string, most int) (*logTail, error) {
	from := func(n int64, limit int) ([]belay.StoredChunk, error) {
		return p.backend.Chunks(ctx, belay.ChunkQuery{Execution: id, Name: name, From: n, Limit: limit})
	}
	last, err := lastChunk(from)
	if err != nil || last < 0 {
		return nil, err
	}
	var text []byte
	var parts []logChunk
	begin := last + 1
	for begin > max(0, last+1-tailChunks) && len(text) < most { // one chunk per read, because each may be large
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
		data = data[max(0, len(data)-most-1):]
		parts = append(parts, logChunk{chunks[0].At, data})
		text = append(append([]byte(nil), data...), text...)
	}
	slices.Reverse(parts)
	t := &logTail{Text: string(text), Cut: begin > 0, chunks: parts}
	if len(t.Text) > most {
		t.Text, t.Cut = t.Text[len(t.Text)-most:], true
		if _, rest, ok := strings.Cut(t.Text, "\n"); ok {
			t.Text = rest
		}
	}
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
