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
	// pollInterval is the interval at which the end of a log is read for a client that follows the
	// log. The log must be polled, because the store does not report that a log has grown.
	pollInterval = 250 * time.Millisecond
	// pageOf is the number of chunks in one read.
	pageOf = 4
)

// chunks passes the chunks of a log to the function each, beginning with the chunk number from,
// until each returns false or the log ends. It reads one page of chunks at a time, and takes the
// memory for a page from a budget that all readers share.
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
	give, err := s.o.Reading.Take(ctx, httpapi.PageBytes)
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

// position is a client's position in the log of a job. output is the number of the next chunk of
// output. progress is the number of a chunk of progress, and lines the number of its lines that
// were already sent. ended is 0 until the event end was sent, and then the seq of the execution at
// the end of the job.
type position struct{ output, progress, lines, ended int64 }

func (p position) String() string {
	text := fmt.Sprintf("%d.%d.%d", p.output, p.progress, p.lines)
	if p.ended > 0 {
		text += fmt.Sprintf(".%d", p.ended)
	}
	return text
}

func positionOf(text string) (p position, err error) {
	if text == "" {
		return p, nil
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 && len(parts) != 4 {
		return p, errPosition
	}
	fields := []*int64{&p.output, &p.progress, &p.lines, &p.ended}
	for i, part := range parts {
		to := fields[i]
		n, err := strconv.ParseUint(part, 10, 63)
		if err != nil {
			return p, errPosition
		}
		*to = int64(n)
	}
	return p, nil
}

var errPosition = &belay.Error{
	Code: belay.CodeMalformed, Message: "the header Last-Event-ID must be the id of an event of this stream",
}

// Output is an event of a job's log: a part of the agent's output.
type Output struct {
	Text string `json:"text"`
}

// JobEnd is the last event of a job's log.
type JobEnd struct {
	Status   string  `json:"status" enum:"completed,failed,timeout,error"`
	ExitCode *int    `json:"exit_code" nullable:"true"`
	Error    *string `json:"error" nullable:"true"`
}

// reconnect tells a browser to open a stream again 2,000 milliseconds after the stream has ended.
const reconnect = "retry: 2000\n\n"

// follower sends the log of a job while the log grows.
type follower struct {
	*endpoint
	ctx  context.Context
	out  *stream
	id   belay.ExecutionID
	at   position
	text partialRune
	next int64  // the number of the next chunk of progress
	line []byte // the beginning of a line of progress whose rest is in a later chunk
}

func (d *endpoint) follow(w http.ResponseWriter, r *http.Request) {
	at, err := positionOf(r.Header.Get("Last-Event-ID"))
	var x belay.Execution
	if err == nil {
		x, err = d.find(r)
	}
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	if x.State.Terminal() && at.ended > 0 && at.ended == x.Seq {
		w.WriteHeader(http.StatusNoContent) // with this status a browser does not request the stream again
		return
	}
	at.ended = 0 // a user reopened the job after the client had received the event end
	ctx, done := d.waiting(r.Context())
	defer done()
	f := &follower{endpoint: d, ctx: ctx, out: d.stream(w), id: x.ID, at: at, next: at.progress}
	if f.out.send([]byte(reconnect)) {
		f.run()
	}
}

func (f *follower) run() {
	if f.at.output > 0 && f.chunks(f.ctx, f.id, agent.OutputLog, f.at.output-1, func(c belay.StoredChunk) bool {
		if c.N < f.at.output {
			_ = f.text.take(c.Data) // the end of this chunk may be the beginning of a character
		}
		return false
	}) != nil {
		return
	}
	last := f.o.Now()
	for {
		x, err := f.b.Await(f.ctx, f.id, pollInterval)
		if err != nil {
			return // the client connects again and then gets the error
		}
		wrote, ok := f.sendMore()
		if !ok {
			return
		}
		now := f.o.Now()
		switch {
		case x.State.Terminal(): // sendMore was called after Await had read the state, so it has sent all output
			j := jobOf(&x, "", nil)
			f.at.ended = x.Seq
			f.out.event("end", f.at.String(), JobEnd{j.Status, j.ExitCode, j.Error})
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

// sendMore sends output and progress that were stored since the last call. wrote says that sendMore
// has sent something. ok is false if the stream cannot continue.
func (f *follower) sendMore() (wrote, ok bool) {
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
		ok = f.sendProgress(c)
		return ok
	})
	return wrote, ok && err == nil
}

// sendProgress sends the complete lines of a chunk of progress, one event for each line. The id of
// an event contains the number of lines of that chunk sent so far, so that a client that resumes
// after any event misses no line.
func (f *follower) sendProgress(c belay.StoredChunk) bool {
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
