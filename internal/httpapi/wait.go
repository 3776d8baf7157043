package httpapi

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay/internal/wire"
)

// wait is how long a request may wait, for example for an event or for the end of an execution. It
// is written as a duration ("30s") or in seconds, and is at most wire.MaxWait.
type wait struct{ time.Duration }

// applied is the value of the header Preference-Applied.
func (w wait) applied() string {
	return "wait=" + strconv.FormatFloat(w.Seconds(), 'f', -1, 64)
}

// UnmarshalText reads a duration or a number of seconds.
func (w *wait) UnmarshalText(b []byte) error {
	s := string(b)
	if strings.Trim(s, "0123456789.") == "" {
		s += "s"
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return malformed(`a wait must have the form "30s" or 30`)
	}
	w.Duration = min(d, wire.MaxWait)
	return nil
}

// Schema describes the wait in the OpenAPI document.
func (wait) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Description: "How long to wait for news: a duration, or seconds; 60 s at most.",
		Examples: []any{"30s"},
	}
}

// preferredWait is the wait in the header Prefer. Other preferences are ignored.
func preferredWait(prefer string) (wait, error) {
	var w wait
	value, ok := preference(prefer, "wait")
	if !ok {
		return w, nil
	}
	if err := w.UnmarshalText([]byte(value)); err != nil {
		return wait{}, malformed("the wait in the header Prefer must have the form wait=SECONDS")
	}
	return w, nil
}

// minimal is the preference for an answer without the parts that the server would have to compute.
const minimal = "return=minimal"

func prefersMinimal(prefer string) bool {
	value, _ := preference(prefer, "return")
	return strings.EqualFold(value, "minimal")
}

// preference returns the value of the first preference with a name in the header Prefer (RFC 7240), and
// whether the header has it.
func preference(prefer, name string) (value string, ok bool) {
	for p := range strings.SplitSeq(prefer, ",") {
		p, _, _ = strings.Cut(p, ";")
		word, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(strings.TrimSpace(word), name) {
			return strings.Trim(strings.TrimSpace(value), `"`), true
		}
	}
	return "", false
}

// waiting is a context for a request that may wait: it ends when the server begins to stop.
func (a *api) waiting(ctx context.Context) (context.Context, func()) {
	if a.o.Stopping == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		select {
		case <-a.o.Stopping:
			cancel(errStopping)
		case <-done:
		}
	}()
	return ctx, func() {
		close(done)
		<-finished
		cancel(nil)
	}
}

// stopped reports whether a wait ended because the server is stopping.
func stopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errStopping) }
