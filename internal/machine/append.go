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

// Sum is how much is kept of a log or artifact, so that a limit is held without
// adding up its chunks.
type Sum struct {
	SumRef
	Bytes int64
	Token belay.Token // of the run that wrote last
	Own   int64       // bytes of the chunks of that run
	Log   bool        // a piece of its middle was dropped
	New   bool
}

// maxChunks bounds a chunk's number, not how many are kept: a log that keeps its
// tail for days counts far.
const maxChunks = 1 << 40

// Append writes a chunk of a log or artifact by its owner. It is no transition
// and raises no seq.
type Append struct {
	belay.Chunk
	judged *judged // nil before Judge
}

// Judge finds out the chunk's hash.
func (c *Append) Judge() {
	if c.judged == nil {
		c.judged = &judged{hash: sha256.Sum256(c.Data)}
	}
}

// Need names the execution, the session, the chunk, those it drops, and how much
// there is.
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
			return Reply{}, refuse(belay.CodeConflict, op, "chunk %d of %q is there with other content", c.N, c.Name)
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
	if e.policy().IdleTimeout > 0 { // output is progress
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

// count adds the chunk to what is kept under its name, and refuses it if that is
// too much. What had a piece of its middle dropped is a log, which keeps its head
// and its tail. Anything else may be an artifact, and what this run writes of it
// the one that takes the place of an earlier run's, which stays until it is whole.
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

// chunk finds a chunk that is there at this point of the fold.
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

// dropped reports whether a chunk that the store has was dropped in this fold.
func (w *world) dropped(ref ChunkRef) bool {
	return slices.ContainsFunc(w.out.Drops, func(d ChunkDrop) bool { return d.covers(ref) })
}

func (d ChunkDrop) covers(ref ChunkRef) bool {
	return d.Execution == ref.Execution && d.Name == ref.Name && d.From <= ref.N && ref.N < d.To
}

// droppedBy are the chunks that a drop would take.
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

// drop takes chunks away. Those that came in this fold are never written.
func (w *world) drop(d ChunkDrop) {
	w.out.Chunks = slices.DeleteFunc(w.out.Chunks, func(c *Chunk) bool { return d.covers(c.ChunkRef) })
	w.out.Drops = append(w.out.Drops, d)
}
