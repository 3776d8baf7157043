package server

import (
	"context"
	"encoding/json"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/bulk/runner"
	"github.com/belaydev/belay/internal/httpapi"
)

// manyBulks is the largest number of bulks that one server runs at the same time.
const manyBulks = 20

// bulks returns the workflow of bulks (belay.Bulk). The actions of bulks pass the same checks as
// actions of users. When the server stops, its bulks stop at once; another server, or this server after
// a restart, continues them.
func bulks(b Engine, admit map[string]httpapi.Admission) Builtin {
	run := &runner.Runner{Backend: httpapi.Admitting(b, admit)}
	return Builtin{
		Workflow: belay.BulkWorkflow, Queue: belay.BulkWorkflow, Concurrency: manyBulks, Grace: -1,
		Run: func(ctx context.Context, input json.RawMessage) (any, error) {
			var bulk belay.Bulk
			if err := json.Unmarshal(input, &bulk); err != nil {
				return nil, belay.Permanent(err)
			}
			return run.Run(ctx, bulk)
		},
	}
}
