package postgres

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

var long = flag.Bool("long", false, "fill the database with a million executions")

// population is the number of executions in a database before a test.
type population struct{ finished, pending, running int }

func populations() population {
	if *long {
		return population{1_000_000, 100_000, 10_000}
	}
	return population{20_000, 5_000, 1_000}
}

// fillUp adds executions to the tables: some that have ended, some that wait to be claimed, and
// some that a worker runs.
func (n population) fillUp(t *testing.T, s *Store, lane machine.LaneID, owner belay.WorkerID) {
	t.Helper()
	const id = "(lpad(to_hex(g), 16, '0') || md5(g::text))::varchar(32)::uuid"
	execution := `INSERT INTO executions (id, lane, created_at, seq, generation, input_gen, state, queue, workflow, token, ready_at, due_at, worker, secret, started_at, run_at, finished_at)
SELECT ` + id + `, %[1]d, g, %[2]s, 1, 1, %[3]s, 'default', 'noop', %[4]s, %[5]s, %[5]s, %[6]s, %[6]s, %[7]s, %[7]s, %[8]s FROM generate_series(%[9]d, %[10]d) g`
	none, w := "NULL", fmt.Sprintf("'%x'::uuid", owner[:])
	at := n.finished + 1
	exec(t, s,
		"SET lock_timeout = 0", // autovacuum locks the same tables
		fmt.Sprintf(execution, lane, "3", "6", "1", none, none, "g", "g", 1, n.finished),
		fmt.Sprintf(execution, lane, "1", "1", none, "g", none, none, none, at, at+n.pending-1),
		fmt.Sprintf(execution, lane, "2", "3", "1", none, w, "g", none, at+n.pending, at+n.pending+n.running-1),
		"INSERT INTO specs (execution, generation, priority, hash, trigger) SELECT id, 1, 0, '', 'manual' FROM "+
			"executions",
		`INSERT INTO runs (execution, token, worker, attempt, generation, started_seq, started_at, ended_seq, ended_at, outcome, final)
SELECT id, 1, coalesce(worker, `+w+`), 1, 1, 2, run_at, CASE WHEN state = 6 THEN 3 END, finished_at, CASE WHEN state = 6 THEN 1 END, state = 6 FROM executions WHERE token = 1`,
		"ANALYZE",
		"RESET lock_timeout",
	)
}

func exec(t *testing.T, s *Store, texts ...string) {
	t.Helper()
	c := <-s.readers
	defer func() { s.readers <- c }()
	if err := s.connected(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if _, err := c.pg.Exec(t.Context(), text).ReadAll(); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// worker is one session with commands for it (submissions, claims, saves and settlements), which
// machine.Fold decides as in an engine.
type worker struct {
	t     *testing.T
	s     *Store
	id    belay.WorkerID
	lane  machine.Lane
	claim int64
	made  uint64
}

func newWorker(t *testing.T, s *Store) *worker {
	t.Helper()
	w := &worker{t: t, s: s, id: belay.WorkerID{1}, lane: machine.NewLane("default", "noop", "", 0, nil), made: 1 << 40}
	w.fold(&machine.Open{WorkerSpec: belay.WorkerSpec{
		ID: w.id, Name: "worker", Workflows: []belay.Registration{{Workflow: "noop"}}, Capacity: 1000,
		TTL: belay.Duration(1 << 50),
	}})
	return w
}

func (w *worker) fold(commands ...machine.Command) []machine.Reply {
	w.t.Helper()
	var need machine.Need
	for _, c := range commands {
		c.Need(&need)
	}
	var replies []machine.Reply
	err := w.s.Commit(context.Background(), need, func(rows *machine.Rows) *machine.Changes {
		var changes *machine.Changes
		changes, replies = machine.Fold(rows, commands)
		return changes
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for i, r := range replies {
		if r.Err != nil {
			w.t.Fatalf("%T: %v", commands[i], r.Err)
		}
	}
	return replies
}

// round submits, claims, saves and settles n executions.
func (w *worker) round(n int) {
	w.t.Helper()
	var submits, saves, settles []machine.Command
	for range n {
		w.made++
		var id belay.ExecutionID
		binary.BigEndian.PutUint64(id[:], w.made)
		submits = append(submits, &machine.Submit{
			Submission: belay.Submission{ID: id, Workflow: "noop", Input: []byte(`1`)},
		})
	}
	w.fold(submits...)
	w.claim++
	won := w.fold(&machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: w.id, Number: w.claim, Slots: n}, Lanes: []machine.Lane{w.lane},
		Secrets: make([]belay.Secret, n),
	})[0].Claims
	if len(won) != n {
		w.t.Fatalf("%d won of %d", len(won), n)
	}
	for _, c := range won {
		e := c.Execution
		l := belay.Lease{Execution: e.ID, Worker: e.Worker, Token: e.Token, Secret: e.Secret}
		saves = append(saves, &machine.Save{
			Save: belay.Save{Lease: l, Kind: belay.KindStep, Key: "a", Data: []byte(`1`)},
		})
		settles = append(settles, &machine.Settle{
			Settlement: belay.Settlement{Lease: l, Outcome: belay.OutcomeSucceeded},
		})
	}
	w.fold(saves...)
	w.fold(settles...)
}

// owns makes the worker claim n new executions, and returns their rows.
func (w *worker) owns(n int) (rows []*machine.Execution) {
	w.t.Helper()
	var submits []machine.Command
	for range n {
		w.made++
		var id belay.ExecutionID
		binary.BigEndian.PutUint64(id[:], w.made)
		submits = append(submits, &machine.Submit{Submission: belay.Submission{ID: id, Workflow: "noop"}})
	}
	w.fold(submits...)
	w.claim++
	for _, c := range w.fold(&machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: w.id, Number: w.claim, Slots: n}, Lanes: []machine.Lane{w.lane},
		Secrets: make([]belay.Secret, n),
	})[0].Claims {
		rows = append(rows, &c.Execution)
	}
	return rows
}

// touched returns how many rows and index entries of each table and index were read since the
// server started.
func touched(t *testing.T, s *Store) map[string]int64 {
	t.Helper()
	all := make(map[string]int64)
	for _, p := range []pool{s.writers, s.readers, s.vital} {
		var held []*slot
		for range cap(p) {
			c := <-p
			held = append(held, c)
			if c.conn != nil {
				if err := c.ask(t.Context(), s.options.Patience, "SELECT pg_stat_force_next_flush()"); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, c := range held {
			p <- c
		}
	}
	err := s.query(t.Context(), func(p *pipe) {
		p.add(`
SELECT relname, seq_tup_read FROM pg_stat_user_tables
UNION ALL
SELECT indexrelname, idx_tup_read FROM pg_stat_user_indexes`, func(r columns) error {
			all[r.text(0)] = r.int(1)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rereads are the indexes whose dead entries heartbeats read again while another transaction keeps
// an old snapshot.
var rereads = map[string]bool{"executions_worker": true}

// A batch reads little more than the rows that it needs, however many executions have ended, wait
// or run, and however many have ended while another transaction keeps an old snapshot.
func TestBatchesReadLittleMoreThanTheyNeed(t *testing.T) {
	const batch = 100
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshot=%t", snapshot), func(t *testing.T) {
			s := testStore(t, Options{Writers: 1, Readers: 2})
			w := newWorker(t, s)
			other := belay.WorkerID{2}
			populations().fillUp(t, s, w.lane.ID, other)
			if snapshot { // like a backup that takes hours
				c, err := connect(t.Context(), s.config)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.pg.Exec(t.Context(),
					"BEGIN ISOLATION LEVEL REPEATABLE READ; SET idle_in_transaction_session_timeout = 0; SELECT "+
						"count(*) FROM meta").ReadAll(); err != nil {
					t.Fatal(err)
				}
				defer c.close()
			}
			all := func() {
				w.round(batch)
				if _, err := s.Due(t.Context(), 100); err != nil {
					t.Fatal(err)
				}
				w.fold(&machine.Heartbeat{Heartbeat: belay.Heartbeat{Worker: w.id}})
			}
			for range 50 {
				all()
			}
			s.floors.mu.Lock()
			for _, f := range s.floors.all {
				// searches below a floor (before the time at which searches normally begin) are rare, and
				// not measured here
				f.full = time.Now().Add(time.Hour)
			}
			s.floors.mu.Unlock()
			before := touched(t, s)
			all()
			for name, n := range touched(t, s) {
				if n -= before[name]; n > 12*batch && !strings.HasPrefix(name, "servers") &&
					!(snapshot && rereads[name]) {
					t.Errorf("%s: %d rows read for batches of %d", name, n, batch)
				}
			}
		})
	}
}
