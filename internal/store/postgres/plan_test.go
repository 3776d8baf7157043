package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// testStore opens an empty database.
func testStore(t testing.TB, o Options) *Store {
	t.Helper()
	url := pgtest.Shared(t).From(t, "belay", func(url string) error {
		_, err := Migrate(context.Background(), url)
		return err
	})
	s, err := Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// scans are the statements that may read a whole table or index, each by a part of its text, with
// the reason.
var scans = map[string]string{
	"FROM meta":                           "one row, and a row for each server",
	"UPDATE meta":                         "one row",
	"pg_control_system() s, meta":         "one row, for each new connection",
	"WITH RECURSIVE lanes":                "skips through the index of ready executions",
	"count(*) FROM executions GROUP":      "for reports",
	"SELECT (SELECT count(*) FROM runs)":  "for reports",
	"FROM workers w WHERE w.ended_at":     "ended sessions, read rarely",
	"ended_at IS NULL AND ($2::text = ''": "all living sessions",
	"ended_at IS NULL AND spec::json":     "all living sessions",
	"ended_at IS NOT NULL AND ($2::text":  "the list of ended sessions walks the primary key as far as it needs",
	"ended_at IS NULL ORDER BY id FOR":    "grace is for all living sessions",
	"UPDATE workers SET expires_at = le":  "grace is for all living sessions",
	"min(ttl) FROM workers":               "all living sessions",
}

// No statement reads a whole table or index, however large the store is. Each finds its rows by a
// key, and sorts at most the rows that it returns.
func TestStatementsFindRowsByIndex(t *testing.T) {
	s := testStore(t, Options{Writers: 1, Readers: 1})
	exercise(t, s)
	checked := 0
	for _, p := range []pool{s.writers, s.readers, s.vital} {
		c := <-p
		if c.conn == nil {
			p <- c
			continue
		}
		for text, sd := range c.prepared {
			flat := strings.Join(strings.Fields(text), " ")
			if allowed(flat) || strings.HasPrefix(flat, "BEGIN") || flat == "COMMIT" || flat == "ROLLBACK" ||
				strings.HasPrefix(flat, "LOCK") {
				continue
			}
			checked++
			for _, bad := range faults(explain(t, c.conn, sd.Name, len(sd.ParamOIDs)), flat) {
				t.Errorf("%s\n  %s", flat, bad)
			}
		}
		p <- c
	}
	if checked < 60 {
		t.Errorf("only %d statements were checked", checked)
	}
}

// faults returns the steps of a plan that read without a limit.
func faults(plan []string, text string) (bad []string) {
	for i, line := range plan {
		switch {
		case strings.Contains(line, "Seq Scan"), strings.Contains(line, "Bitmap"), strings.Contains(line, "Hash Join"),
			strings.Contains(line, "Merge Join"):
			bad = append(bad, line)
		case strings.Contains(line, "Index Scan") || strings.Contains(line, "Index Only Scan"):
			bounded := i+1 < len(plan) && strings.Contains(plan[i+1], "Index Cond")
			// These indexes contain little more than the result.
			small := strings.Contains(line, "executions_parting") || strings.Contains(text, "WITH RECURSIVE owners") ||
				strings.Contains(line, "executions_spent") ||
				tallied(line, text) || strings.Contains(line, "executions_worker") && strings.Contains(text, "run_seq")
			if !bounded && !small {
				bad = append(bad, line)
			}
		}
	}
	return bad
}

// tallied reports whether a step counts all entries of an index of unfinished work.
func tallied(line, text string) bool {
	if strings.Contains(text, "GROUP BY") {
		for _, index := range []string{"executions_ready", "executions_worker", "executions_resting", "executions_line",
			"places_held", "dead_letters_open"} {
			if strings.Contains(line, "using "+index) {
				return true
			}
		}
	}
	return false
}

func allowed(flat string) bool {
	for part := range scans {
		if strings.Contains(flat, part) {
			return true
		}
	}
	return false
}

// explain returns the plan of a prepared statement, one line for each step.
func explain(t *testing.T, c *conn, name string, params int) (plan []string) {
	t.Helper()
	p := c.pipe()
	text := "EXPLAIN (COSTS off) EXECUTE " + name
	if params > 0 {
		text += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ") + ")"
	}
	s := p.add(text, func(r columns) error {
		plan = append(plan, r.text(0))
		return nil
	})
	s.once = true
	if err := p.run(t.Context()); err != nil {
		t.Fatalf("explain: %v", err)
	}
	return plan
}

// exercise makes the store prepare all its statements.
func exercise(t *testing.T, s *Store) {
	t.Helper()
	id, child, worker := belay.ExecutionID{1}, belay.ExecutionID{2}, belay.WorkerID{3}
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
	var saved, claimed, ended, all machine.Execution
	// one execution for each statement that updates executions
	for i, e := range []*machine.Execution{&saved, &claimed, &ended, &all} {
		*e = *both[0]
		e.New, e.Seq = false, 2
		switch i {
		case 1:
			e.Token = 2
		case 2:
			e.Attempts, e.Message = 1, "m"
		case 3:
			e.SignalSeq, e.Checkpoints = 3, 1
		}
		commit(&machine.Changes{Executions: []*machine.Execution{e}})
	}
	commit(&machine.Changes{
		// This commit changes the session but not its state. The next commit ends the session.
		Workers: []*machine.Worker{{ID: worker, State: belay.WorkerOpen, HeartbeatAt: 1}},
		Runs: []*machine.Run{
			{Execution: id, Token: 1, New: true, StartedSeq: 1},
		}, Checkpoints: []*machine.Checkpoint{{Execution: id, Seq: 1}},
	})
	commit(&machine.Changes{
		Workers: []*machine.Worker{{ID: worker, State: belay.WorkerClosed, EndedAt: 1}},
		Runs: []*machine.Run{
			{Execution: id, Token: 2, New: true, StartedSeq: 1, EndedSeq: 2}, {Execution: id, Token: 1, EndedSeq: 2},
		},
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
	commit(&machine.Changes{Keys: []machine.KeyRow{
		// a key that is taken over from the execution that has it
		{Key: machine.Key{Workflow: "w", Key: "k"}, Execution: id, Was: id},
	}})
	s.parents.all = nil // so that the ancestors are read again
	commit(&machine.Changes{Mark: true})
	reads(t, s, id)
	f, large := forest{s, t.Context(), 1, 0}, []store.Member{{ID: id, Seq: store.LightSeq + 1}}
	_, leaves := f.Leaves(id, 1)
	_, nodes := f.Nodes(id, 1)
	_, weight := f.Weigh(large)
	if err := errors.Join(leaves, nodes, weight); err != nil {
		t.Fatal(err)
	}
	slot := <-s.writers
	err := s.transact(t.Context(), slot, func(ctx context.Context) error {
		return s.deleteRows(ctx, slot, &prunable{
			Felled: store.Felled{Trim: belay.ExecutionID{9}},
		}, nil, &store.Pruned{}, 1)
	})
	if s.writers <- slot; err != nil {
		t.Fatal(err)
	}
	over := store.Retention{Before: s.Now(), Letters: s.Now()}
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
	_, bare := s.List(ctx, store.List{Parent: id})
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
	for _, err := range []error{read, heads, list, bare, due, ready, lanes, chunks, workers, named, objects, trail,
		runs, dueLanes, tally} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
