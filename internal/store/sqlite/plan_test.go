package sqlite

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// scans are the statements that may read a whole table, each by a part of its text, with the
// reason.
var scans = map[string]string{
	"FROM meta":                   "one row",
	"FROM servers":                "a row for each server",
	"DELETE FROM servers":         "a row for each server",
	"FROM workers w WHERE":        "ended sessions, read rarely",
	"ended_at IS NULL AND spec":   "all living sessions",
	"ORDER BY id DESC LIMIT ?":    "lists walk the primary key as far as they need",
	"FROM sqlite_schema":          "once, when it is opened",
	"goose_db_version":            "once, when it is opened",
	"UPDATE workers SET exp":      "grace is for all living sessions",
	"min(ttl)":                    "all living sessions",
	"ORDER BY e.ready_at, e.lane": "sorts one row for each lane with a due execution",
	"WITH work AS MATERIALIZED":   "groups the unfinished work, which it finds by indexes of only such rows",
	"WITH used AS MATERIALIZED":   "groups the places and lines of gates, which it finds by such indexes",
	"AS c CROSS JOIN runs":        "the runs of a limited number of children",
	"count(DISTINCT CASE":         "sorts the names of a limited number of checkpoints",
}

// No statement reads a whole table, however large the store is: each finds its rows by a key or an
// index.
func TestStatementsFindRowsByIndex(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "belay.db"), Options{Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	exercise(t, s)
	reader := <-s.readers
	defer func() { s.readers <- reader }()
	checked := 0
	for _, c := range []*conn{s.writer, reader} {
		var texts []string
		for text := range c.statements {
			texts = append(texts, text)
		}
		for _, text := range texts {
			if strings.HasPrefix(text, "PRAGMA") || strings.HasPrefix(text, "EXPLAIN") || allowed(text) {
				continue
			}
			checked++
			for _, step := range plan(t, c, text) {
				if strings.HasPrefix(step, "SCAN") && !small(step) && !tallied(step, text) {
					t.Errorf("%s\n  reads a whole table: %s", text, step)
				}
				if strings.Contains(step, "USE TEMP B-TREE") && !strings.Contains(text, "owners") &&
					!strings.Contains(text, "GROUP BY") {
					t.Errorf("%s\n  sorts: %s", text, step)
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d statements were checked", checked)
	}
}

// small reports whether a step reads only a little: the owners of executions, the ready lanes, or
// an index that contains little more than the result.
func small(step string) bool {
	return strings.HasPrefix(step, "SCAN CONSTANT ROW") || strings.HasPrefix(step, "SCAN owners") ||
		strings.HasPrefix(step, "SCAN lanes") || strings.HasPrefix(step, "SCAN (subquery") ||
		strings.Contains(step, "executions_parting")
}

// tallied reports whether a step counts all entries of an index of unfinished work.
func tallied(step, text string) bool {
	if strings.Contains(text, "GROUP BY") {
		for _, index := range []string{"executions_ready", "executions_worker", "executions_resting",
			"dead_letters_open"} {
			if strings.HasSuffix(step, "INDEX "+index) {
				return true
			}
		}
	}
	return false
}

func allowed(text string) bool {
	flat := strings.Join(strings.Fields(text), " ")
	for part := range scans {
		if strings.Contains(flat, part) {
			return true
		}
	}
	return false
}

func plan(t *testing.T, c *conn, text string) []string {
	t.Helper()
	var steps []string
	for range strings.Count(text, "?") {
		c.args.add(nil)
	}
	err := c.query(t.Context(), "EXPLAIN QUERY PLAN "+text, func(r columns) error {
		steps = append(steps, r.text(3))
		return nil
	})
	if err != nil {
		t.Fatalf("explain %s: %v", text, err)
	}
	return steps
}

// exercise makes the store prepare all its statements.
func exercise(t *testing.T, s *Store) {
	t.Helper()
	id, child, worker := belay.ExecutionID{1}, belay.ExecutionID{2}, belay.WorkerID{3}
	now := s.Now()
	row := func(id belay.ExecutionID) *machine.Execution {
		return &machine.Execution{
			ID: id, Workflow: "w", Queue: "q", Lane: 1, State: belay.Succeeded, Seq: 1, Generation: 1, InputGen: 1,
			CreatedAt: 1, FinishedAt: 1, New: true,
		}
	}
	both := []*machine.Execution{row(id), row(child)}
	both[1].Parent = id
	commit := func(c *machine.Changes) {
		t.Helper()
		need := machine.Need{
			Workers: []belay.WorkerID{worker}, Held: []belay.WorkerID{worker}, Executions: []belay.ExecutionID{id,
				child},
			Ready: []machine.ReadyQuery{{Lane: 1, Limit: 10}}, Keys: []machine.Key{{Workflow: "w", Key: "k"}},
			Specs: []belay.ExecutionID{id},
			Runs:  []belay.RunID{{Execution: id, Token: 1}}, Ops: []machine.OpRef{{Execution: id, Op: belay.OpID{1}}},
			Signals: []machine.SignalRef{{Execution: id, Seq: 1}},
			Chunks:  []machine.ChunkRef{{Execution: id, Name: "n"}}, Checkpoints: []belay.ExecutionID{id},
			Owners: []belay.ExecutionID{id}, Objects: []machine.ObjectRef{{Kind: "k", Name: "n"}},
			Drops: []machine.ChunkDrop{{Execution: id, Name: "n", To: 1}},
			Sums:  []machine.SumRef{{Execution: id, Name: "n"}},
		}
		if err := s.Commit(t.Context(), need, func(*machine.Rows) *machine.Changes { return c }); err != nil {
			t.Fatal(err)
		}
	}
	commit(&machine.Changes{
		Executions: both, Specs: []*machine.Spec{
			{Execution: id, Generation: 1, Key: "k"},
		}, Lanes: []machine.Lane{{ID: 1}},
		Keys:    []machine.KeyRow{{Key: machine.Key{Workflow: "w", Key: "k"}, Execution: id}},
		Workers: []*machine.Worker{{ID: worker, State: belay.WorkerOpen, New: true}}, Objects: []*machine.Object{
			{ObjectRef: machine.ObjectRef{Kind: "k", Name: "n"}, Version: 1, Body: []byte("{}")},
		},
		Audit: []*machine.Audit{{ObjectRef: machine.ObjectRef{Kind: "k", Name: "n"}}},
		Sums:  []*machine.Sum{{SumRef: machine.SumRef{Execution: id, Name: "n"}, New: true}},
	})
	changed := *both[0]
	changed.New, changed.Seq = false, 2
	commit(&machine.Changes{
		Executions: []*machine.Execution{&changed}, Workers: []*machine.Worker{
			{ID: worker, State: belay.WorkerClosed, EndedAt: 1},
		},
		Runs: []*machine.Run{
			{Execution: id, Token: 1, New: true, StartedSeq: 1},
		}, Checkpoints: []*machine.Checkpoint{{Execution: id, Seq: 1}},
		Pruned: []machine.SignalRef{{Execution: id, Seq: 1}}, Signals: []*machine.Signal{{Execution: id, Seq: 1}},
		Consumed: []*machine.Signal{
			{Execution: id, Seq: 1, ConsumedBy: 2},
		}, Deeds: []*machine.Deed{{Execution: id, Seq: 2}},
		DeadLetters: []*machine.DeadLetter{
			{Execution: id, Generation: 1, New: true}, {Execution: id, Generation: 1, Resolution: "fixed"},
		},
		Chunks: []*machine.Chunk{{ChunkRef: machine.ChunkRef{Execution: id, Name: "n"}}}, Grace: time.Second,
		Drops: []machine.ChunkDrop{{Execution: id, Name: "n", To: 1}},
		Objects: []*machine.Object{
			{ObjectRef: machine.ObjectRef{Kind: "k", Name: "n"}, Version: 2, Was: 1, Body: []byte("{}")},
		},
		Sums: []*machine.Sum{{SumRef: machine.SumRef{Execution: id, Name: "n"}, Bytes: 1}},
	})
	commit(&machine.Changes{Runs: []*machine.Run{{Execution: id, Token: 1, StartedSeq: 1, EndedSeq: 2, Class: 1}}})
	reads(t, s, id)
	err := s.read(t.Context(), func(ctx context.Context, c *conn) error {
		f := &forest{c, ctx, 1, 0}
		_, leaves := f.Leaves(id, 1)
		_, nodes := f.Nodes(id, 1)
		_, weight := f.Weigh([]store.Member{{ID: id, Seq: store.LightSeq + 1}})
		return firstOf(leaves, nodes, weight)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(t.Context(), "trim", func(t *tx) (bool, error) {
		return true, t.delete(nil, belay.ExecutionID{9})
	}); err != nil {
		t.Fatal(err)
	}
	over := store.Retention{Before: now, Letters: now}
	if p, err := s.Prune(t.Context(), over, 10); err != nil || p.Executions != 2 || p.Sessions != 1 {
		t.Fatalf("pruned %+v: %v", p, err)
	}
}

func reads(t *testing.T, s *Store, id belay.ExecutionID) {
	t.Helper()
	ctx := t.Context()
	_, read := s.Read(ctx, store.Read{
		Execution: id, Spec: true, Run: true, Runs: 3, History: true, Data: true, Resume: true,
	})
	_, heads := s.Read(ctx, store.Read{Execution: id, History: true, Detail: true})
	_, list := s.List(ctx, store.List{Parent: id, Payloads: true})
	_, due := s.Due(ctx, 10)
	_, ready := s.ReadyLanes(ctx)
	_, lanes := s.Lanes(ctx, []machine.LaneID{1})
	_, chunks := s.Chunks(ctx, belay.ChunkQuery{Execution: id, Name: "n"})
	_, workers := s.Workers(ctx, store.WorkerQuery{Limit: 10, Owned: true})
	_, named := s.Workers(ctx, store.WorkerQuery{IDs: []belay.WorkerID{{3}}})
	_, objects := s.Query(ctx, store.Query{Of: store.Objects, Kind: "k"})
	_, trail := s.Query(ctx, store.Query{Of: store.Trail})
	_, runs := s.Query(ctx, store.Query{Of: store.Runs})
	_, dueLanes := s.Query(ctx, store.Query{Of: store.DueLanes})
	_, tally := s.Tally(ctx)
	if err := firstOf(read, heads, list, due, ready, lanes, chunks, workers, named, objects, trail, runs, dueLanes,
		tally); err != nil {
		t.Fatal(err)
	}
}
