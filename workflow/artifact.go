package workflow

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// Artifact stores the data of r as an artifact of the execution and returns its size in bytes. It
// replaces an artifact of the same name. An artifact of an earlier run is replaced when the new
// artifact is complete, and an artifact of this run when the new artifact begins. If r has more
// than belay.MaxArtifact bytes, the error has CodePayloadTooLarge and is marked belay.Permanent;
// the bytes stored before remain. Two branches must not write an artifact of the same name at the
// same time.
func Artifact(ctx context.Context, name string, r io.Reader) (int64, error) {
	x := run.From(ctx)
	if x == nil {
		return 0, run.ErrNoRun
	}
	old, own := x.Numbered(name)
	if !own && !first(x) {
		if err := eachChunk(x, name, func(c belay.StoredChunk) { old = c.N + 1 }); err != nil {
			return 0, err
		}
	}
	var size int64
	for n := old; ; n++ {
		buf := make([]byte, belay.MaxChunk) // each chunk needs a new buffer, because the Backend may keep the data
		got, err := io.ReadFull(r, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return size, fmt.Errorf("artifact %s: %w", name, err)
		}
		if size += int64(got); size > belay.MaxArtifact {
			return size, belay.Permanent(&belay.Error{
				Code: belay.CodePayloadTooLarge, Op: "artifact " + name,
				Message: fmt.Sprintf("the artifact has more than %d bytes, the limit", belay.MaxArtifact),
			})
		}
		c := belay.Chunk{Name: name, N: n, Data: buf[:got]}
		if last || own && n == old {
			c.DropTo = old
		}
		x.Number(name, n+1) // even if Append fails, the chunk may have been written
		if err := x.Append(c); err != nil || last {
			return size, err
		}
	}
}

// ReadArtifact returns the artifact that an earlier step or run has stored under the name. The
// error has CodeNotFound if the execution has no artifact of that name.
func ReadArtifact(ctx context.Context, name string) ([]byte, error) {
	x := run.From(ctx)
	if x == nil {
		return nil, run.ErrNoRun
	}
	var data []byte
	found := false
	if err := eachChunk(x, name, func(c belay.StoredChunk) {
		data, found = append(data, c.Data...), true
	}); err != nil {
		return nil, fmt.Errorf("artifact %s: %w", name, err)
	}
	if !found {
		return nil, &belay.Error{Code: belay.CodeNotFound, Message: "this execution has no artifact " + name}
	}
	return data, nil
}

// ReadLog reads up to limit chunks of a log of this execution, from the number from on, of this run and of earlier
// runs. There are no further chunks if it returns fewer than limit.
func ReadLog(ctx context.Context, name string, from int64, limit int) ([]belay.StoredChunk, error) {
	x := run.From(ctx)
	if x == nil {
		return nil, run.ErrNoRun
	}
	return x.Chunks(name, from, limit)
}
