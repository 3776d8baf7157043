package machine

import (
	"crypto/sha256"
	"slices"

	"github.com/belaydev/belay"
)

// ChunkRef names a chunk.
type ChunkRef struct {
	Execution belay.ExecutionID
	Name      string
	N         int64
}

// Chunk is a piece of a log or artifact, with the hash of its content.
type Chunk struct {
	ChunkRef
	Token belay.Token
	Hash  [32]byte
	Data  []byte
	At    Time
	Size  int64
}

// SumRef names a log or artifact.
type SumRef struct {
	Execution belay.ExecutionID
	Name      string
}

// Sum is the number of stored bytes of a log or artifact, so that a limit can be checked without
// adding up the chunks.
type Sum struct {
	SumRef
	Bytes int64
	Token belay.Token // token of the run that wrote the newest chunk
	Own   int64       // total bytes of the chunks that this run wrote
	Log   bool        // the name belongs to a log: its writer dropped chunks between head and tail at least once
	New   bool
}

// maxChunks is the largest number that a chunk may have. It does not limit the count of stored
// chunks: a log that keeps only its head and tail reaches high numbers within days.
const maxChunks = 1 << 40

// Append writes a chunk of a log or artifact on behalf of the run's owner. It is not a transition,
// and does not raise the execution's seq.
type Append struct {
	belay.Chunk
	judged *judged // the result of Judge; nil before Judge is called
}

// Judge computes the hash of the chunk.
func (c *Append) Judge() {
	if c.judged == nil {
		c.judged = &judged{hash: sha256.Sum256(c.Data)}
	}
}

// Need asks the store for the execution, the session, the chunk, the chunks to drop, and the stored
// size (Sum) of the log or artifact.
func (c *Append) Need(n *Need) {
	needLease(n, c.Lease)
	n.Chunks = append(n.Chunks, c.ref())
	n.Sums = append(n.Sums, c.sum())
	if c.DropTo > c.DropFrom {
		n.Drops = append(n.Drops, c.drop())
	}
}

func (c *Append) ref() ChunkRef   { return ChunkRef{c.Lease.Execution, c.Name, c.N} }
func (c *Append) sum() SumRef     { return SumRef{c.Lease.Execution, c.Name} }
func (c *Append) drop() ChunkDrop { return ChunkDrop{c.Lease.Execution, c.Name, c.DropFrom, c.DropTo} }

func (c *Append) apply(w *world) (Reply, error) {
	const op = "append"
	e, err := w.owner(op, c.Lease)
	if err != nil {
		return Reply{}, err
	}
	if err := c.check(op); err != nil {
		return Reply{}, err
	}
	c.Judge()
	hash := c.judged.hash
	if have, ok := w.chunk(c.ref()); ok {
		if have.Hash != hash {
			return Reply{}, refuse(belay.CodeConflict, op, "chunk %d of %q exists with other content", c.N, c.Name)
		}
		return Reply{Replayed: true}, nil
	}
	if err := c.count(w, op, e.Token); err != nil {
		return Reply{}, err
	}
	if c.DropTo > c.DropFrom {
		w.drop(c.drop())
	}
	w.out.Chunks = append(w.out.Chunks, &Chunk{
		ChunkRef: c.ref(), Token: e.Token, Hash: hash, Data: c.Data, At: w.Now, Size: int64(len(c.Data)),
	})
	if e.policy().IdleTimeout > 0 { // output counts as progress
		e.ProgressAt = w.Now
		w.changed(e)
	}
	return Reply{}, nil
}

func (c *Append) check(op string) error {
	if err := checkName(op, "the name", c.Name, true); err != nil {
		return err
	}
	if len(c.Data) > belay.MaxChunk {
		return refuse(belay.CodePayloadTooLarge, op, "chunk %d of %q has %d bytes; the limit is %d", c.N, c.Name,
			len(c.Data), belay.MaxChunk)
	}
	if c.N < 0 || c.N >= maxChunks {
		return refuse(belay.CodeInvalid, op, "chunk number %d of %q is out of range", c.N, c.Name)
	}
	if c.DropFrom < 0 || c.DropTo < c.DropFrom || c.DropTo > c.N {
		return refuse(belay.CodeInvalid, op, "cannot drop chunks %d to %d of %q", c.DropFrom, c.DropTo, c.Name)
	}
	return nil
}

// count adds the chunk to the stored size of its log or artifact, and refuses a chunk that exceeds
// the limit. A log that keeps its head and its tail, which is one whose middle chunks were dropped,
// may have the limit once. Everything else may have it twice, because an artifact may replace the
// artifact of an earlier run, which stays until the new one is complete.
func (c *Append) count(w *world, op string, token belay.Token) error {
	s := w.sums[c.sum()]
	next := Sum{SumRef: c.sum(), New: true}
	if s != nil {
		next = *s
	}
	if next.Token != token {
		next.Token, next.Own = token, 0
	}
	for _, k := range w.droppedBy(c.drop()) {
		next.Bytes -= k.Size
		if k.Token == token {
			next.Own -= k.Size
		}
	}
	size := int64(len(c.Data))
	next.Bytes, next.Own = next.Bytes+size, next.Own+size
	next.Log = next.Log || c.DropFrom > 0 && c.DropTo > c.DropFrom
	switch {
	case next.Log && next.Bytes > belay.MaxLog:
		return refuse(belay.CodePayloadTooLarge, op,
			"log %q would keep %d bytes; the limit is %d: drop more of its middle", c.Name, next.Bytes, belay.MaxLog)
	case next.Own > belay.MaxArtifact || next.Bytes > 2*belay.MaxArtifact:
		return refuse(belay.CodePayloadTooLarge, op,
			"%q would have %d bytes; the limit of an artifact is %d, that of a log %d",
			c.Name, next.Bytes, belay.MaxArtifact, belay.MaxLog)
	}
	if s == nil {
		s = new(Sum)
		w.sums[c.sum()] = s
	}
	*s = next
	if !slices.Contains(w.out.Sums, s) {
		w.out.Sums = append(w.out.Sums, s)
	}
	return nil
}

// chunk finds a chunk that exists after the earlier commands of the batch.
func (w *world) chunk(ref ChunkRef) (Chunk, bool) {
	for _, c := range w.out.Chunks {
		if c.ChunkRef == ref {
			return *c, true
		}
	}
	for i := range w.Chunks {
		if w.Chunks[i].ChunkRef == ref && !w.dropped(ref) {
			return w.Chunks[i], true
		}
	}
	return Chunk{}, false
}

// dropped reports whether a chunk that the store has was dropped in this batch.
func (w *world) dropped(ref ChunkRef) bool {
	return slices.ContainsFunc(w.out.Drops, func(d ChunkDrop) bool { return d.covers(ref) })
}

func (d ChunkDrop) covers(ref ChunkRef) bool {
	return d.Execution == ref.Execution && d.Name == ref.Name && d.From <= ref.N && ref.N < d.To
}

// droppedBy lists the chunks that a drop would remove.
func (w *world) droppedBy(d ChunkDrop) []Chunk {
	var out []Chunk
	seen := make(map[ChunkRef]bool)
	for i := range w.Chunks {
		if c := &w.Chunks[i]; d.covers(c.ChunkRef) && !seen[c.ChunkRef] && !w.dropped(c.ChunkRef) {
			seen[c.ChunkRef] = true
			out = append(out, *c)
		}
	}
	for _, c := range w.out.Chunks {
		if d.covers(c.ChunkRef) {
			out = append(out, *c)
		}
	}
	return out
}

// drop removes chunks. Chunks that were appended in this batch are never written.
func (w *world) drop(d ChunkDrop) {
	w.out.Chunks = slices.DeleteFunc(w.out.Chunks, func(c *Chunk) bool { return d.covers(c.ChunkRef) })
	w.out.Drops = append(w.out.Drops, d)
}
