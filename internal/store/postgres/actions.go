package postgres

import (
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/table"
)

var insertDeeds = insert(table.Deeds)

func (t *tx) writeDeeds(p *pipe, c *machine.Changes) error {
	if len(c.Deeds) > 0 {
		bind(p.add(insertDeeds, nil), table.Deeds, c.Deeds)
	}
	return nil
}

const deleteChunks = `
DELETE FROM blobs b
USING (SELECT unnest($1::uuid[]) AS execution, unnest($2::text[]) AS name, unnest($3::bigint[]) AS low, unnest($4::bigint[]) AS high) u
WHERE b.execution = u.execution AND b.name = u.name AND b.n >= u.low AND b.n < u.high`

var insertChunks = insert(table.Chunks)

// writeChunks deletes the dropped chunks before it adds the new ones, because a new chunk may have
// the number of a dropped one.
func (t *tx) writeChunks(p *pipe, c *machine.Changes) error {
	if len(c.Drops) > 0 {
		bindDrops(p.add(deleteChunks, nil), c.Drops)
	}
	for rows := range pieces(c.Chunks, func(k *machine.Chunk) int { return len(k.Data) }) {
		bind(p.add(insertChunks, nil), table.Chunks, rows)
	}
	return nil
}

var (
	insertSums = insert(table.Sums)
	sumChanges = table.Sums.Only("bytes, token, own, log, execution, name")
	updateSums = counted(update(sumChanges, "execution, name"), len(sumChanges.Columns))
)

// writeSums writes the total sizes of logs and artifacts.
func (t *tx) writeSums(p *pipe, c *machine.Changes) error {
	fresh, changed := split(c.Sums, func(s *machine.Sum) bool { return s.New })
	if len(fresh) > 0 {
		bind(p.add(insertSums, nil), table.Sums, fresh)
	}
	if len(changed) > 0 {
		bind(change(p, updateSums, "sums", len(changed)), sumChanges, changed).int(int64(len(changed)))
	}
	return nil
}
