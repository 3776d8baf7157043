package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// frame is one event in the form in which it is sent.
type frame struct {
	seq  int64
	text []byte
	end  []byte // the event that closes the stream, if the execution has ended with this event
}

// read reads the next events and marshals them.
func read(ctx context.Context, b belay.Client, q belay.EventQuery) ([]frame, error) {
	events, err := b.Events(ctx, q)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	return framesOf(ctx, b, events)
}

// framesOf marshals events. If the last event ended the execution, and the execution was not
// reopened after it, the last frame also contains the event that closes the stream.
func framesOf(ctx context.Context, b belay.Client, events []belay.Event) ([]frame, error) {
	frames := make([]frame, len(events))
	for i := range events {
		e := &events[i]
		text, err := sse("event", strconv.FormatInt(e.Seq, 10), e)
		if err != nil {
			return nil, err
		}
		frames[i] = frame{seq: e.Seq, text: text}
	}
	last := &events[len(events)-1]
	if !last.Final {
		return frames, nil
	}
	x, err := b.Execution(ctx, last.Execution)
	if err == nil && x.State.Terminal() && x.Seq == last.Seq {
		frames[len(frames)-1].end, err = endOf(&x)
	}
	return frames, err
}

// endOf is the event that closes a stream.
func endOf(x *belay.Execution) ([]byte, error) {
	return sse("end", strconv.FormatInt(x.Seq, 10), wire.End{State: x.State, Seq: x.Seq})
}

// sse is one server-sent event. JSON has no raw line breaks, so the data is one line.
func sse(name, id string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(len(data) + len(name) + len(id) + 24)
	b.WriteString("event: " + name + "\n")
	if id != "" {
		b.WriteString("id: " + id + "\n")
	}
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
	return b.Bytes(), nil
}
