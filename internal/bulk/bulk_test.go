package bulk_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/bulk"
)

// Check refuses a bulk that selects everything without the field All, and a bulk with a field that is invalid or
// contradicts another field.
func TestCheckRefuses(t *testing.T) {
	half, much := 0.5, 1.5
	none := math.NaN()
	w := belay.BulkFilter{Workflow: "w"}
	for name, b := range map[string]belay.Bulk{
		"no action":            {Filter: w},
		"another action":       {Action: "steal", Filter: w},
		"everything":           {Action: belay.BulkRequeue},
		"everything of a time": {Action: belay.BulkDiscard, Filter: belay.BulkFilter{Since: time.Unix(0, 0)}},
		"everything that is running": {Action: belay.BulkCancel, Filter: belay.BulkFilter{
			States: []belay.State{belay.Running},
		}},
		"bulks": {Action: belay.BulkCancel, Filter: belay.BulkFilter{
			Workflow: belay.BulkWorkflow,
		}},
		"a queue of dead letters": {Action: belay.BulkRequeue, Filter: belay.BulkFilter{Queue: "q"}},
		"a reason of executions":  {Action: belay.BulkRetry, Filter: belay.BulkFilter{Reason: "lost"}},
		"another reason":          {Action: belay.BulkRequeue, Filter: belay.BulkFilter{Reason: "x"}},
		"until before since": {Action: belay.BulkRequeue, Filter: belay.BulkFilter{
			Workflow: "w", Since: time.Unix(2, 0), Until: time.Unix(1, 0),
		}},
		"a cancel of what has ended": {Action: belay.BulkCancel, Filter: belay.BulkFilter{
			Workflow: "w", States: []belay.State{belay.Failed},
		}},
		"a retry of what runs": {Action: belay.BulkRetry, Filter: belay.BulkFilter{
			Workflow: "w", States: []belay.State{belay.Running},
		}},
		"a state twice": {Action: belay.BulkRetry, Filter: belay.BulkFilter{
			Workflow: "w", States: []belay.State{belay.Failed, belay.Failed, belay.Failed},
		}},
		"a control character": {Action: belay.BulkRetry, Filter: belay.BulkFilter{Workflow: "w\n"}},
		"a label without a key": {Action: belay.BulkRetry, Filter: belay.BulkFilter{
			Labels: map[string]string{"": "x"},
		}},
		"an input to cancel": {Action: belay.BulkCancel, Filter: w, Input: json.RawMessage("1")},
		"two inputs": {Action: belay.BulkRequeue, Filter: w, Input: json.RawMessage("1"),
			InputPatch: json.RawMessage("1")},
		"no JSON":            {Action: belay.BulkRequeue, Filter: w, InputPatch: json.RawMessage("{")},
		"long notes":         {Action: belay.BulkDiscard, Filter: w, Notes: strings.Repeat("x", belay.MaxBulkNotes+1)},
		"a forged line":      {Action: belay.BulkDiscard, Filter: w, Notes: "x\ny"},
		"a long actor":       {Action: belay.BulkDiscard, Filter: w, Actor: strings.Repeat("x", belay.MaxName+1)},
		"a negative rate":    {Action: belay.BulkDiscard, Filter: w, Rate: -1},
		"a rate that is NaN": {Action: belay.BulkDiscard, Filter: w, Rate: none},
		"a high rate":        {Action: belay.BulkDiscard, Filter: w, Rate: belay.MaxBulkRate + 1},
		"a large canary":     {Action: belay.BulkDiscard, Filter: w, Canary: []int{1, belay.MaxBulkStage + 1}},
		"an empty stage":     {Action: belay.BulkDiscard, Filter: w, Canary: []int{0}},
		"many stages":        {Action: belay.BulkDiscard, Filter: w, Canary: []int{1, 1, 1, 1, 1, 1}},
		"a share above one":  {Action: belay.BulkDiscard, Filter: w, MaxFailures: &much},
		"a share of NaN":     {Action: belay.BulkDiscard, Filter: w, MaxFailures: &none},
	} {
		if err := bulk.Check(&b); belay.CodeOf(err) != belay.CodeInvalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, b := range []belay.Bulk{
		{Action: belay.BulkRequeue, All: true},
		{Action: belay.BulkCancel, Filter: w, Canary: []int{}, MaxFailures: &half, Rate: 0.1},
		{Action: belay.BulkRetry, Filter: belay.BulkFilter{Labels: map[string]string{"a": "b"}}},
	} {
		if err := bulk.Check(&b); err != nil || b.Rate == 0 || b.Canary == nil || b.MaxFailures == nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// endless is a Source whose lists never end: every page has a next page.
type endless struct{ pages, size int }

func (s *endless) DeadLetters(_ context.Context, f belay.DeadLetterFilter) (belay.DeadLetterPage, error) {
	s.pages++
	n := min(s.size, f.Limit)
	page := belay.DeadLetterPage{DeadLetters: make([]belay.DeadLetter, n), Next: "more"}
	for i := range page.DeadLetters {
		page.DeadLetters[i].Message = strings.Repeat("é", 10_000)
	}
	return page, nil
}

func (s *endless) Executions(context.Context, belay.Filter) (belay.Page, error) {
	s.pages++
	return belay.Page{Next: "more"}, nil
}

// A dry run is bounded in pages and rows, and in the bytes of its answer.
func TestPreviewIsBounded(t *testing.T) {
	for _, action := range []belay.BulkAction{belay.BulkRequeue, belay.BulkCancel} {
		from := &endless{size: 1 << 20}
		p, err := bulk.Preview(t.Context(), from, belay.Bulk{Action: action})
		if err != nil || !p.More || p.Count > belay.MaxBulk || len(p.First) > 10 || from.pages > 100 {
			t.Errorf("%s: count %d, %d pages, %v", action, p.Count, from.pages, err)
		}
		if text, err := json.Marshal(p); err != nil || len(text) > 10_000 {
			t.Errorf("%s: %d bytes, %v", action, len(text), err)
		}
	}
}
