package postgres

import "github.com/belaydev/belay/internal/machine"

const insertDeeds = `
INSERT INTO actions (execution, seq, kind, actor, reason, op, at, token, final, op_sum)
SELECT unnest($1::uuid[]), unnest($2::bigint[]), unnest($3::text[]), unnest($4::text[]), unnest($5::text[]), unnest($6::uuid[]),
       unnest($7::bigint[]), unnest($8::bigint[]), unnest($9::boolean[]), unnest($10::uuid[])`

func (t *tx) writeDeeds(p *pipe, c *machine.Changes) error {
	rows := c.Deeds
	if len(rows) == 0 {
		return nil
	}
	s := p.add(insertDeeds, nil)
	uuids(s, rows, func(d *machine.Deed) [16]byte { return d.Execution })
	ints(s, int8s, rows, func(d *machine.Deed) int64 { return d.Seq })
	texts(s, rows, func(d *machine.Deed) string { return d.Kind })
	textsOrNull(s, rows, func(d *machine.Deed) string { return d.Actor })
	textsOrNull(s, rows, func(d *machine.Deed) string { return d.Reason })
	uuids(s, rows, func(d *machine.Deed) [16]byte { return d.Op })
	ints(s, int8s, rows, func(d *machine.Deed) int64 { return int64(d.At) })
	ints(s, int8OrNull, rows, func(d *machine.Deed) int64 { return int64(d.Token) })
	ints(s, boolOrNull, rows, func(d *machine.Deed) int64 { return number(d.Final) })
	uuids(s, rows, func(d *machine.Deed) [16]byte { return d.OpSum })
	return nil
}

const (
	insertLetters = `
INSERT INTO dead_letters (execution, generation, seq, token, reason, class, message, at, resolution, resolved_by, resolved_at)
SELECT unnest($1::uuid[]), unnest($2::integer[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::text[]), unnest($6::smallint[]),
       unnest($7::text[]), unnest($8::bigint[]), unnest($9::text[]), unnest($10::text[]), unnest($11::bigint[])`
	resolveLetters = `
UPDATE dead_letters d
SET resolution = u.resolution, resolved_by = u.resolved_by, resolved_at = u.resolved_at
FROM (
    SELECT unnest($1::uuid[]) AS execution, unnest($2::integer[]) AS generation, unnest($3::text[]) AS resolution,
           unnest($4::text[]) AS resolved_by, unnest($5::bigint[]) AS resolved_at
) u
WHERE d.execution = u.execution AND d.generation = u.generation AND d.resolution IS NULL`
)

// writeLetters adds dead letters and resolves those that are open.
func (t *tx) writeLetters(p *pipe, c *machine.Changes) error {
	fresh, resolved := split(c.DeadLetters, func(d *machine.DeadLetter) bool { return d.New })
	if len(fresh) > 0 {
		s := p.add(insertLetters, nil)
		uuids(s, fresh, func(d *machine.DeadLetter) [16]byte { return d.Execution })
		ints(s, int4s, fresh, func(d *machine.DeadLetter) int64 { return int64(d.Generation) })
		ints(s, int8s, fresh, func(d *machine.DeadLetter) int64 { return d.Seq })
		ints(s, int8OrNull, fresh, func(d *machine.DeadLetter) int64 { return int64(d.Token) })
		texts(s, fresh, func(d *machine.DeadLetter) string { return d.Reason })
		ints(s, int2s, fresh, func(d *machine.DeadLetter) int64 { return int64(d.Class) })
		textsOrNull(s, fresh, func(d *machine.DeadLetter) string { return d.Message })
		ints(s, int8s, fresh, func(d *machine.DeadLetter) int64 { return int64(d.At) })
		bindResolutions(s, fresh)
	}
	if len(resolved) > 0 {
		s := p.add(resolveLetters, nil)
		uuids(s, resolved, func(d *machine.DeadLetter) [16]byte { return d.Execution })
		ints(s, int4s, resolved, func(d *machine.DeadLetter) int64 { return int64(d.Generation) })
		bindResolutions(s, resolved)
	}
	return nil
}

func bindResolutions(s *step, rows []*machine.DeadLetter) {
	textsOrNull(s, rows, func(d *machine.DeadLetter) string { return d.Resolution })
	textsOrNull(s, rows, func(d *machine.DeadLetter) string { return d.ResolvedBy })
	ints(s, int8OrNull, rows, func(d *machine.DeadLetter) int64 { return int64(d.ResolvedAt) })
}

const (
	deleteChunks = `
DELETE FROM blobs b
USING (SELECT unnest($1::uuid[]) AS execution, unnest($2::text[]) AS name, unnest($3::bigint[]) AS low, unnest($4::bigint[]) AS high) u
WHERE b.execution = u.execution AND b.name = u.name AND b.n >= u.low AND b.n < u.high`
	insertChunks = "INSERT INTO blobs (" + chunkColumns + `)
SELECT unnest($1::uuid[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bytea[]), unnest($6::bigint[]),
       unnest($7::bigint[]), unnest($8::bytea[])`
)

// writeChunks drops chunks, then adds others: a number may be used again.
func (t *tx) writeChunks(p *pipe, c *machine.Changes) error {
	if len(c.Drops) > 0 {
		bindDrops(p.add(deleteChunks, nil), c.Drops)
	}
	for rows := range pieces(c.Chunks, func(k *machine.Chunk) int { return len(k.Data) }) {
		s := p.add(insertChunks, nil)
		uuids(s, rows, func(k *machine.Chunk) [16]byte { return k.Execution })
		texts(s, rows, func(k *machine.Chunk) string { return k.Name })
		ints(s, int8s, rows, func(k *machine.Chunk) int64 { return k.N })
		ints(s, int8s, rows, func(k *machine.Chunk) int64 { return int64(k.Token) })
		hashes(s, rows, func(k *machine.Chunk) *[32]byte { return &k.Hash })
		ints(s, int8s, rows, func(k *machine.Chunk) int64 { return k.Size })
		ints(s, int8s, rows, func(k *machine.Chunk) int64 { return int64(k.At) })
		byteas(s, rows, func(k *machine.Chunk) []byte { return k.Data })
	}
	return nil
}

const (
	insertSums = "INSERT INTO blob_sums (" + sumColumns + `)
SELECT unnest($1::uuid[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]), unnest($6::boolean[])`
	changeSums = `
UPDATE blob_sums b
SET bytes = u.bytes, token = u.token, own = u.own, log = u.log
FROM (
    SELECT unnest($1::uuid[]) AS execution, unnest($2::text[]) AS name, unnest($3::bigint[]) AS bytes, unnest($4::bigint[]) AS token,
           unnest($5::bigint[]) AS own, unnest($6::boolean[]) AS log
) u
WHERE b.execution = u.execution AND b.name = u.name`
)

var updateSums = counted(changeSums, 6)

// writeSums writes how much is kept under the names.
func (t *tx) writeSums(p *pipe, c *machine.Changes) error {
	fresh, changed := split(c.Sums, func(s *machine.Sum) bool { return s.New })
	if len(fresh) > 0 {
		bindSums(p.add(insertSums, nil), fresh)
	}
	if len(changed) > 0 {
		s := change(p, updateSums, "sums", len(changed))
		bindSums(s, changed)
		s.int(int64(len(changed)))
	}
	return nil
}

func bindSums(s *step, rows []*machine.Sum) {
	uuids(s, rows, func(x *machine.Sum) [16]byte { return x.Execution })
	texts(s, rows, func(x *machine.Sum) string { return x.Name })
	ints(s, int8s, rows, func(x *machine.Sum) int64 { return x.Bytes })
	ints(s, int8s, rows, func(x *machine.Sum) int64 { return int64(x.Token) })
	ints(s, int8s, rows, func(x *machine.Sum) int64 { return x.Own })
	ints(s, boolOrNull, rows, func(x *machine.Sum) int64 { return number(x.Log) })
}
