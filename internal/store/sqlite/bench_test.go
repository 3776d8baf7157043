package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/sqlite"
)

// load does the work of a client, a worker and an engine in one goroutine.
type load struct {
	b       *testing.B
	store   *sqlite.Store
	worker  belay.WorkerID
	lane    machine.Lane
	counter uint64
	claim   int64
}

func newLoad(b *testing.B) *load {
	b.Helper()
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "belay.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	l := &load{b: b, store: s, worker: belay.WorkerID{1}, lane: machine.NewLane("default", "noop", "", 0, nil)}
	l.fold(&machine.Open{WorkerSpec: belay.WorkerSpec{
		ID: l.worker, Name: "bench", Workflows: []belay.Registration{{Workflow: "noop"}}, Capacity: 1000,
		TTL: belay.Duration(1 << 50),
	}})
	return l
}

func (l *load) fold(commands ...machine.Command) []machine.Reply {
	l.b.Helper()
	var need machine.Need
	for _, c := range commands {
		c.Need(&need)
	}
	var replies []machine.Reply
	err := l.store.Commit(context.Background(), need, func(rows *machine.Rows) *machine.Changes {
		var changes *machine.Changes
		changes, replies = machine.Fold(rows, commands)
		return changes
	})
	if err != nil {
		l.b.Fatal(err)
	}
	for i, r := range replies {
		if r.Err != nil {
			l.b.Fatalf("%T: %v", commands[i], r.Err)
		}
	}
	return replies
}

// unique makes 16 bytes that grow with each call, like a UUIDv7; the last eight bytes look random.
func (l *load) unique() (id [16]byte) {
	l.counter++
	binary.BigEndian.PutUint64(id[:], l.counter)
	binary.BigEndian.PutUint64(id[8:], l.counter*0x9e3779b97f4a7c15)
	return id
}

var payload = []byte(`{"to":"somebody@example.org","subject":"a payload of about three hundred bytes","body":"` +
	`Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. ` +
	`Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip."}`)

func (l *load) submits(n int) []machine.Command {
	commands := make([]machine.Command, n)
	for i := range commands {
		commands[i] = &machine.Submit{Submission: belay.Submission{ID: l.unique(), Workflow: "noop", Input: payload}}
	}
	return commands
}

func (l *load) claims(n int) machine.Command {
	l.claim++
	return &machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: l.worker, Number: l.claim, Slots: n},
		Lanes:        []machine.Lane{l.lane}, Secrets: make([]belay.Secret, n),
	}
}

func lease(c machine.Claimed) belay.Lease {
	e := c.Execution
	return belay.Lease{Execution: e.ID, Worker: e.Worker, Token: e.Token, Secret: e.Secret}
}

func (l *load) settles(won []machine.Claimed) []machine.Command {
	commands := make([]machine.Command, len(won))
	for i, c := range won {
		commands[i] = &machine.Settle{Settlement: belay.Settlement{
			Lease: lease(c), Op: l.unique(), Outcome: belay.OutcomeSucceeded, Output: []byte(`"done"`),
		}}
	}
	return commands
}

// BenchmarkSingleCommit measures a single INSERT with its own fsync. This is the best speed of a
// store without batches on this disk, with which to compare the other results.
func BenchmarkSingleCommit(b *testing.B) {
	db, err := sql.Open("sqlite", filepath.Join(b.TempDir(), "single.db")+"?_journal_mode=WAL&_synchronous=FULL")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(b.Context(),
		"CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB) STRICT"); err != nil {
		b.Fatal(err)
	}
	insert, err := db.PrepareContext(b.Context(), "INSERT INTO rows (data) VALUES (?)")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = insert.Close() }()
	for b.Loop() {
		if _, err := insert.ExecContext(context.Background(), payload); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// BenchmarkHeartbeat measures a heartbeat of a worker with a thousand runs.
func BenchmarkHeartbeat(b *testing.B) {
	const runs = 1000
	l := newLoad(b)
	l.fold(l.submits(runs)...)
	beat := &machine.Heartbeat{Heartbeat: belay.Heartbeat{Worker: l.worker, ClaimSeen: 1}}
	for _, won := range l.fold(l.claims(runs))[0].Claims {
		beat.Holds = append(beat.Holds, belay.Held{Execution: won.Execution.ID, Token: won.Execution.Token})
	}
	for b.Loop() {
		if r := l.fold(beat); len(r[0].Heartbeat.Revoked) > 0 {
			b.Fatalf("%d runs are revoked", len(r[0].Heartbeat.Revoked))
		}
	}
	b.ReportMetric(runs*float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

// BenchmarkNoopExecutions runs executions that do nothing, from submission to settlement. Each
// commit submits n executions, claims n executions, and settles the executions that the previous
// commit has claimed.
func BenchmarkNoopExecutions(b *testing.B) {
	for _, batch := range []int{1, 64, 500} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			l := newLoad(b)
			var won []machine.Claimed
			done := 0
			for b.Loop() {
				commands := append(l.settles(won), l.submits(batch)...)
				done += len(won)
				commands = append(commands, l.claims(batch))
				replies := l.fold(commands...)
				won = replies[len(replies)-1].Claims
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "executions/s")
		})
	}
}

// BenchmarkQueuedExecutions runs executions that do nothing. It submits them in a first commit,
// claims them in a second, and settles them in a third.
func BenchmarkQueuedExecutions(b *testing.B) {
	for _, batch := range []int{64, 500} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			l := newLoad(b)
			done := 0
			for b.Loop() {
				l.fold(l.submits(batch)...)
				won := l.fold(l.claims(batch))[0].Claims
				l.fold(l.settles(won)...)
				done += len(won)
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "executions/s")
		})
	}
}

// BenchmarkSteps saves steps of executions with ten steps each, with the given number of executions
// at a time.
func BenchmarkSteps(b *testing.B) {
	for _, batch := range []int{1, 64, 500} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			l := newLoad(b)
			var won []machine.Claimed
			steps := 0
			for b.Loop() {
				if steps%(10*batch) == 0 {
					b.StopTimer()
					if won != nil {
						l.fold(l.settles(won)...)
					}
					l.fold(l.submits(batch)...)
					won = l.fold(l.claims(batch))[0].Claims
					b.StartTimer()
				}
				commands := make([]machine.Command, len(won))
				for i, c := range won {
					commands[i] = &machine.Save{Save: belay.Save{
						Lease: lease(c), Op: l.unique(), Kind: belay.KindStep, Key: fmt.Sprintf("step-%d",
							steps/batch%10), Data: []byte(`{"ok":true}`),
					}}
				}
				l.fold(commands...)
				steps += batch
			}
			b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}

// BenchmarkPrune deletes ended executions, as many in a commit as an engine deletes.
func BenchmarkPrune(b *testing.B) {
	l := newLoad(b)
	const batch = 200
	for range b.N {
		l.fold(l.submits(batch)...)
		won := l.fold(l.claims(batch))[0].Claims
		l.fold(l.settles(won)...)
	}
	b.ResetTimer()
	done := 0
	for more := true; more; {
		p, err := l.store.Prune(b.Context(), store.Retention{Before: l.store.Now()}, batch)
		if err != nil {
			b.Fatal(err)
		}
		done, more = done+p.Executions, p.More
	}
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "executions/s")
}
