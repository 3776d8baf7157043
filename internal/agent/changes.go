package agent

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/belaydev/belay"
)

// MaxDiff is the maximum size, in bytes, of a diff that [ReadDiff] returns.
const MaxDiff = 1 << 20

// ReadDiff reads the changes of an ended job as a diff for people to read. cut says that the diff is
// only the beginning. The diff is nil if the job changed nothing. chunks reads one artifact of the
// execution x. A diff has the names and contents of files that the job chose, so it may contain any
// bytes.
func ReadDiff(ctx context.Context, x *belay.Execution, chunks func(context.Context, belay.ChunkQuery) (
	[]belay.StoredChunk, error)) (diff []byte, cut bool, err error) {
	var out struct {
		Changes *Changes `json:"changes"`
	}
	if !x.State.Terminal() {
		return nil, false, &belay.Error{
			Code: belay.CodeConflict, Message: x.ID.String() + " has not ended, so its changes are not final",
		}
	}
	if len(x.Output) == 0 || json.Unmarshal(x.Output, &out) != nil || out.Changes == nil {
		return nil, false, nil //nolint:nilerr // the execution of another workflow has no changes
	}
	name := out.Changes.Diff
	if name == "" {
		name = out.Changes.Patch
	}
	if name == "" {
		return nil, false, nil
	}
	for n := int64(0); ; {
		page, err := chunks(ctx, belay.ChunkQuery{Execution: x.ID, Name: name, From: n, Limit: 1})
		if err != nil {
			return nil, false, err
		}
		if len(page) == 0 {
			return diff, out.Changes.DiffCut, nil
		}
		diff, n = append(diff, page[0].Data...), page[0].N+1
		if len(diff) > MaxDiff {
			return diff[:bytes.LastIndexByte(diff[:MaxDiff], '\n')+1], true, nil
		}
	}
}
