package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httpapi"
)

const (
	// look is how often the end of a log is looked at while somebody follows it:
	// what is appended wakes nobody.
	look = 250 * time.Millisecond
	// pageOf is how many chunks are read at a time.
	pageOf = 4
)

// chunks reads a log from a chunk on, a page at a time, until each is false or
// there is no more. A page takes room that all readers share.
func (s *Service) chunks(ctx context.Context, id belay.ExecutionID, name string, from int64,
	each func(belay.StoredChunk) bool) error {
	for {
		next, more, err := s.page(ctx, id, name, from, each)
		if err != nil || !more {
			return err
		}
		from = next
	}
}

func (s *Service) page(ctx context.Context, id belay.ExecutionID, name string, from int64,
	each func(belay.StoredChunk) bool) (next int64, more bool, err error) {
	give, err := s.o.Reading.Take(ctx, httpapi.PageRoom)
	if err != nil {
		return from, false, err
	}
	defer give()
	page, err := s.b.Chunks(ctx, belay.ChunkQuery{Execution: id, Name: name, From: from, Limit: pageOf})
	if err != nil {
		return from, false, fmt.Errorf("read the %s of %s: %w", name, id, err)
	}
	for _, c := range page {
		if !each(c) {
			return from, false, nil
		}
		from = c.N + 1
	}
	return from, len(page) == pageOf, nil
}

// position is how far a follower has come: the next chunk of output, and a chunk of
// progress of which so many lines are done.
type position struct{ output, progress, lines int64 }

func (p position) String() string { return fmt.Sprintf("%d.%d.%d", p.output, p.progress, p.lines) }

func positionOf(text string) (p position, err error) {
	if text == "" {
		return p, nil
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return p, errPosition
	}
	for i, to := range []*int64{&p.output, &p.progress, &p.lines} {
		n, err := strconv.ParseUint(parts[i], 10, 63)
		if err != nil {
			return p, errPosition
		}
		*to = int64(n)
	}
	return p, nil
}

var errPosition = &belay.Error{
	Code: belay.CodeMalformed, Message: "the header Last-Event-ID is the id of an event of this stream",
}

// Output is an event of a job's log: a piece of what the agent wrote.
type Output struct {
	Text string `json:"text"`
}

// follower writes the log of a job as it comes.
type follower struct {
	*door
	ctx  context.Context
	out  *stream
	id   belay.ExecutionID
	at   position
	text held
	next int64  // the next chunk of progress
	line []byte // the beginning of a line of it
}

func (d *door) follow(w http.ResponseWriter, r *http.Request) {
	at, err := positionOf(r.Header.Get("Last-Event-ID"))
	var x belay.Execution
	if err == nil {
		x, err = d.find(r)
	}
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	ctx, done := d.waiting(r.Context())
	defer done()
	f := &follower{door: d, ctx: ctx, out: d.stream(w), id: x.ID, at: at, next: at.progress}
	f.run()
}

func (f *follower) run() {
	if f.at.output > 0 && f.chunks(f.ctx, f.id, agent.OutputLog, f.at.output-1, func(c belay.StoredChunk) bool {
		if c.N < f.at.output {
			_ = f.text.take(c.Data) // a character may begin in it
		}
		return false
	}) != nil {
		return
	}
	last := f.o.Now()
	for {
		x, err := f.b.Await(f.ctx, f.id, look)
		if err != nil {
			return // the client comes again and is told why
		}
		wrote, ok := f.more()
		if !ok {
			return
		}
		now := f.o.Now()
		switch {
		case x.State.Terminal(): // what came before the end has been read after it
			j := jobOf(&x, "", nil)
			f.out.event("end", "", struct {
				Status   string  `json:"status"`
				ExitCode *int    `json:"exit_code"`
				Error    *string `json:"error"`
			}{j.Status, j.ExitCode, j.Error})
			return
		case wrote:
			last = now
		case now.Sub(last) >= f.o.Ping:
			if last = now; !f.out.ping() {
				return
			}
		}
	}
}

// more writes what has come since, and reports whether there was any and whether
// the stream goes on.
func (f *follower) more() (wrote, ok bool) {
	ok = true
	err := f.chunks(f.ctx, f.id, agent.OutputLog, f.at.output, func(c belay.StoredChunk) bool {
		f.at.output = c.N + 1
		wrote = true
		ok = f.out.event("output", f.at.String(), Output{f.text.take(c.Data)})
		return ok
	})
	if err != nil || !ok {
		return wrote, false
	}
	err = f.chunks(f.ctx, f.id, agent.ProgressLog, f.next, func(c belay.StoredChunk) bool {
		f.next = c.N + 1
		wrote = true
		ok = f.steps(c)
		return ok
	})
	return wrote, ok && err == nil
}

// steps writes the lines of progress that are whole. The id of each says how many
// lines of its chunk are done, so that none is missed by who goes on from there.
func (f *follower) steps(c belay.StoredChunk) bool {
	data, done := c.Data, int64(0)
	if c.N == f.at.progress {
		for more := true; more && done < f.at.lines; done++ {
			_, data, more = bytes.Cut(data, []byte("\n"))
		}
	}
	f.line = append(f.line, data...)
	for {
		line, rest, whole := bytes.Cut(f.line, []byte("\n"))
		if !whole {
			return true
		}
		f.line = rest
		done++
		f.at.progress, f.at.lines = c.N, done
		if json.Valid(line) && !f.out.event("progress", f.at.String(), json.RawMessage(line)) {
			return false
		}
	}
}
