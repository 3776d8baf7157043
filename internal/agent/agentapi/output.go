package agentapi

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
)

const (
	// maxOutput is the maximum size of the output in a job, in bytes.
	maxOutput = 1 << 20
	// outputRoom is the memory, in bytes, that is needed to read the end of an output: one page of
	// chunks, and maxOutput bytes.
	outputRoom = httpapi.PageBytes + maxOutput
)

// output returns the end of a job's output and reserves memory for it. The caller must call give
// after it has sent the output, to free that memory.
func (s *Service) output(ctx context.Context, id belay.ExecutionID) (end []byte, give func(), err error) {
	if give, err = s.o.Reading.Take(ctx, outputRoom); err != nil {
		return nil, nil, err
	}
	if end, err = s.end(ctx, id); err != nil {
		give()
		return nil, nil, fmt.Errorf("read the output of %s: %w", id, err)
	}
	return end, give, nil
}

// end reads the last maxOutput bytes of a log.
func (s *Service) end(ctx context.Context, id belay.ExecutionID) ([]byte, error) {
	from := func(n int64, limit int) ([]belay.StoredChunk, error) {
		return s.b.Chunks(ctx, belay.ChunkQuery{Execution: id, Name: agent.OutputLog, From: n, Limit: limit})
	}
	last, err := lastChunk(from)
	if err != nil || last < 0 {
		return nil, err
	}
	buffer := make([]byte, maxOutput)
	free := len(buffer)
	for begin := last + 1; begin > 0 && free > 0; {
		first := max(0, begin-pageOf)
		page, err := from(first, int(begin-first))
		if err != nil {
			return nil, err
		}
		if len(page) == 0 || page[0].N >= begin {
			break // chunks in the middle of a long log may be missing; only the end after this gap is read
		}
		for i := len(page) - 1; i >= 0 && free > 0; i-- {
			if page[i].N >= begin {
				continue
			}
			data := page[i].Data
			data = data[max(0, len(data)-free):]
			free -= copy(buffer[free-len(data):], data)
		}
		begin = first
	}
	end := buffer[free:]
	for free == 0 && len(end) > 0 && !utf8.RuneStart(end[0]) {
		end = end[1:]
	}
	return end, nil
}

// lastChunk returns the number of the last chunk of a log, or a negative number if the log is
// empty. It uses an exponential search: it doubles the step until it has passed the end, and then
// halves the step.
func lastChunk(from func(n int64, limit int) ([]belay.StoredChunk, error)) (int64, error) {
	last, step, growing := int64(-1), int64(1), true
	for {
		page, err := from(last+step, 1)
		switch {
		case err != nil:
			return last, err
		case len(page) > 0:
			if last = page[0].N; growing {
				step *= 2
			}
		case step == 1:
			return last, nil
		default:
			step, growing = step/2, false
		}
	}
}
