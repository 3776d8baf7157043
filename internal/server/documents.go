package server

import (
	"context"
	"encoding/json"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/internal/httpapi"
)

// manyDocuments is the largest number of documents that one server runs at the same time. A document that waits for a
// long time needs no place.
const manyDocuments = 100

// documents returns the workflow of documents. Its worker is not that of the tasks, so that a document never waits
// behind the tasks that it has started. The tasks pass the same checks as submissions of users. When the server stops,
// its documents stop at once; another server, or this server after a restart, continues them.
func documents(b Engine, admit map[string]httpapi.Admission) Builtin {
	run := &runner.Runner{}
	return Builtin{
		Workflow: runner.Workflow, Concurrency: manyDocuments, Grace: -1, Waits: true,
		Backend: httpapi.Admitting(b, admit),
		Run: func(ctx context.Context, input json.RawMessage) (any, error) {
			var in runner.Input
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, belay.Permanent(err)
			}
			return run.Run(ctx, in)
		},
	}
}

// admitDocument checks the input of a document. Only a caller with access to the data directory may add repairs to it;
// all others send them to the route of repairs, which checks them.
func admitDocument(ctx context.Context, x *belay.Submission) (stored func(belay.ExecutionID), err error) {
	before, trusted, _ := httpapi.Reopened(ctx)
	if trusted {
		before = x.Input
	}
	return func(belay.ExecutionID) {}, runner.CheckReopened(x.Input, before)
}
