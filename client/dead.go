package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// DeadLetters lists dead letters, the newest first.
func (c *Client) DeadLetters(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterPage, error) {
	q, err := letterQuery(f)
	if err != nil {
		return belay.DeadLetterPage{}, err
	}
	set(q, "cursor", f.Cursor)
	number(q, "limit", int64(min(max(f.Limit, 0), 1000)))
	return get[belay.DeadLetterPage](ctx, c, "list dead letters", "/v1/dead-letters", q)
}

// DeadLetterGroups counts dead letters by their fingerprints.
func (c *Client) DeadLetterGroups(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterGroups, error) {
	q, err := letterQuery(f)
	if err != nil {
		return belay.DeadLetterGroups{}, err
	}
	return get[belay.DeadLetterGroups](ctx, c, "group dead letters", "/v1/dead-letter-groups", q)
}

// checkLetters refuses a filter with a word that no dead letter can have, with the same error code
// as an engine in this process.
func checkLetters(f belay.DeadLetterFilter) error {
	const op = "list dead letters"
	bad := func(format string, args ...any) error {
		return &belay.Error{Code: belay.CodeInvalid, Op: op, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case f.Resolution != "" && !slices.Contains(belay.DeadLetterWords, f.Resolution):
		return bad("there is no resolution %q; it can be %s", f.Resolution, strings.Join(belay.DeadLetterWords, ", "))
	case f.Reason != "" && !slices.Contains(belay.DeadLetterReasons, f.Reason):
		return bad("there is no reason %q; it can be %s", f.Reason, strings.Join(belay.DeadLetterReasons, ", "))
	}
	return checkTexts(op, f.Workflow, f.Fingerprint, f.Text)
}

// checkTexts refuses a text of a filter that breaks the rules for names, so that it can match nothing. The error has
// the same code as from an engine in this process.
func checkTexts(op string, all ...string) error {
	for _, s := range all {
		if len(s) > belay.MaxName || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			return &belay.Error{Code: belay.CodeInvalid, Op: op, Message: fmt.Sprintf(
				"%q is no text of at most %d bytes without control characters", s, belay.MaxName)}
		}
	}
	return nil
}

// between adds the bounds of a time to a query.
func between(q url.Values, since, until time.Time) {
	for name, t := range map[string]time.Time{"since": since, "until": until} {
		if !t.IsZero() {
			set(q, name, t.UTC().Format(time.RFC3339Nano))
		}
	}
}

func letterQuery(f belay.DeadLetterFilter) (url.Values, error) {
	if err := checkLetters(f); err != nil {
		return nil, err
	}
	q := url.Values{}
	set(q, "resolution", f.Resolution)
	set(q, "reason", f.Reason)
	set(q, "workflow", f.Workflow)
	set(q, "fingerprint", f.Fingerprint)
	set(q, "text", f.Text)
	if f.Class != 0 {
		class, err := f.Class.MarshalText()
		if err != nil {
			return nil, err
		}
		set(q, "class", string(class))
	}
	between(q, f.Since, f.Until)
	return q, nil
}

// DeadLetter reads one dead letter.
func (c *Client) DeadLetter(ctx context.Context, id belay.ExecutionID, generation int) (belay.DeadLetterDetail, error) {
	q := url.Values{}
	number(q, "generation", int64(generation))
	return get[belay.DeadLetterDetail](ctx, c, "read dead letter "+id.String(), letterPath(id), q)
}

// ChangeDeadLetter resolves a dead letter, or adds a note to it. It makes an operation id if the change
// has none.
func (c *Client) ChangeDeadLetter(ctx context.Context, d belay.DeadLetterChange) (belay.DeadLetter, error) {
	op := string(d.Action) + " dead letter " + d.Execution.String()
	switch d.Action {
	case belay.DeadLetterFix, belay.DeadLetterDiscard, belay.DeadLetterNoted:
	default:
		return belay.DeadLetter{}, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: "there is no action " + string(d.Action) + " on a dead letter",
		}
	}
	if d.Op.IsZero() {
		d.Op = belay.OpID(c.set.ids())
	}
	var out belay.DeadLetter
	r := &request{op: op, method: http.MethodPost, reply: &out, header: idempotent(d.Op)}
	r.path = letterPath(d.Execution) + "/" + string(d.Action)
	var err error
	if r.body, err = body(op, wire.Resolve{Generation: d.Generation, Notes: d.Note, Actor: d.Actor}); err != nil {
		return out, err
	}
	err = c.retry(ctx, r)
	return out, err
}

func letterPath(id belay.ExecutionID) string { return "/v1/dead-letters/" + id.String() }
