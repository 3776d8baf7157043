package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/store/storetest"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// server is one of two stores that share a database.
type server struct {
	*postgres.Store
	t *testing.T
}

// two opens a database twice, with a clock that the test moves.
func two(t *testing.T) (a, b server, clock *storetest.Clock) {
	t.Helper()
	url := database(t)
	clock = storetest.NewClock()
	a = server{open(t, url, postgres.Options{Clock: clock.Now}), t}
	b = server{open(t, url, postgres.Options{Clock: clock.Now}), t}
	return a, b, clock
}

// during commits commands. It calls meanwhile once, after the rows are locked and loaded and before
// anything is written.
func (s server) during(meanwhile func(*machine.Rows), commands ...machine.Command) ([]machine.Reply, error) {
	return s.duringAttempt(1, meanwhile, commands...)
}

// duringAttempt is like during, but calls meanwhile in the nth attempt at the transaction.
func (s server) duringAttempt(n int, meanwhile func(*machine.Rows), commands ...machine.Command) ([]machine.Reply,
	error) {
	var need machine.Need
	for _, c := range commands {
		c.Need(&need)
	}
	var replies []machine.Reply
	attempt := 0
	err := s.Commit(context.Background(), need, func(rows *machine.Rows) *machine.Changes {
		if attempt++; attempt == n && meanwhile != nil {
			meanwhile(rows)
		}
		var changes *machine.Changes
		changes, replies = machine.Fold(rows, commands)
		changes.Beat = time.Second
		return changes
	})
	return replies, err
}

// ok commits a command that must succeed.
func (s server) ok(c machine.Command) machine.Reply {
	s.t.Helper()
	r := s.try(c)
	if r.Err != nil {
		s.t.Fatalf("%T: %v", c, r.Err)
	}
	return r
}

// try commits a command that may be refused.
func (s server) try(c machine.Command) machine.Reply {
	s.t.Helper()
	r, err := s.during(nil, c)
	if err != nil {
		s.t.Fatalf("%T: %v", c, err)
	}
	return r[0]
}

func (s server) submit(n byte) belay.ExecutionID {
	s.t.Helper()
	return s.ok(&machine.Submit{Submission: belay.Submission{ID: belay.ExecutionID{n}, Workflow: "w"}}).ID
}

func (s server) openWorker(n byte) belay.WorkerID {
	s.t.Helper()
	id := belay.WorkerID{n}
	s.ok(&machine.Open{WorkerSpec: belay.WorkerSpec{
		ID: id, Name: "worker", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 9,
	}})
	return id
}

func claim(worker belay.WorkerID, number int64, slots int) *machine.Claim {
	return &machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: worker, Number: number, Slots: slots},
		Lanes:        []machine.Lane{machine.NewLane("default", "w", "", 0, nil)}, Secrets: make([]belay.Secret, slots),
	}
}

// run submits an execution and claims it.
func (s server) run(worker belay.WorkerID, n byte) belay.Lease {
	s.t.Helper()
	s.submit(n)
	return lease(s.ok(claim(worker, int64(n), 1)).Claims[0])
}

func (s server) row(id belay.ExecutionID) *machine.Execution {
	s.t.Helper()
	rec, err := s.Read(s.t.Context(), store.Read{Execution: id})
	if err != nil {
		s.t.Fatal(err)
	}
	return rec.Execution
}

func settle(l belay.Lease) *machine.Settle {
	return &machine.Settle{
		Settlement: belay.Settlement{Lease: l, Op: belay.OpID(l.Execution), Outcome: belay.OutcomeSucceeded},
	}
}

// waits runs do in a goroutine and checks that it waits for locks of another transaction. The
// function that it returns waits until do has returned.
func (s server) waits(do func()) (end func()) {
	s.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	blocked(s.t, 1, done)
	return func() { <-done }
}

// blocked waits until n processes of the database server wait for locks. It fails the test if done
// is closed first.
func blocked(t *testing.T, n int, done <-chan struct{}) {
	t.Helper()
	for {
		out, err := pgtest.Shared(t).Query("postgres", "SELECT count(*) >= "+string(rune('0'+n))+
			" FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
		if err != nil {
			t.Fatal(err)
		}
		if out == "t" {
			return
		}
		select {
		case <-done:
			t.Error("it did not wait")
			return
		default:
		}
	}
}

// Two batches that name the same executions in opposite order wait for each other without a
// deadlock.
func TestOverlappingBatchesDoNotDeadlock(t *testing.T) {
	a, b, _ := two(t)
	var there, back []machine.Command
	for n := range byte(20) {
		id := a.submit(n + 1)
		there = append(there, &machine.Deliver{SignalRequest: belay.SignalRequest{Execution: id, Name: "a"}})
		back = append([]machine.Command{&machine.Deliver{SignalRequest: belay.SignalRequest{Execution: id, Name: "b"}}},
			back...)
	}
	const rounds = 30
	var wg sync.WaitGroup
	for _, s := range []struct {
		server
		commands []machine.Command
	}{{a, there}, {a, back}, {b, there}, {b, back}} {
		wg.Go(func() {
			for range rounds {
				if _, err := s.during(nil, s.commands...); err != nil {
					t.Errorf("commit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if got := a.row(belay.ExecutionID{7}).SignalSeq; got != 1+4*rounds {
		t.Errorf("the newest signal has seq %d, want %d", got, 1+4*rounds)
	}
	noDeadlock(t)
}

// If two servers claim from one lane (the executions with equal queue, workflow, version, priority
// and labels) at the same time, each due execution goes to only one of them, and neither server
// waits for the other.
func TestClaimsOfTwoServersShareALane(t *testing.T) {
	a, b, _ := two(t)
	wa, wb := a.openWorker(1), b.openWorker(2)
	for n := range byte(20) {
		a.submit(n + 1)
	}
	var other []machine.Claimed
	mine, err := a.during(func(*machine.Rows) { other = b.ok(claim(wb, 1, 10)).Claims }, claim(wa, 1, 10))
	if err != nil || len(mine[0].Claims) != 10 || len(other) != 10 {
		t.Fatalf("%d and %d won (%v), want 10 each", len(mine[0].Claims), len(other), err)
	}
	for _, c := range append(mine[0].Claims, other...) {
		if got := a.row(c.Execution.ID); got.Worker != c.Execution.Worker || got.Token != 1 {
			t.Errorf("%s is owned by %s with token %d", got.ID, got.Worker, got.Token)
		}
	}
}

// A lane (a group of executions that the same workers may claim) is read again soon if another
// server had locked due executions in it, because no hint reports the end of the lock.
func TestRowsLockedByOthersAreLookedAtAgain(t *testing.T) {
	a, b, _ := two(t)
	wa, wb := a.openWorker(1), b.openWorker(2)
	a.submit(1)
	need := machine.Need{Ready: []machine.ReadyQuery{{Lane: claim(wb, 1, 1).Lanes[0].ID, Limit: 5}}}
	_, err := a.during(func(*machine.Rows) {
		err := b.Commit(t.Context(), need, func(rows *machine.Rows) *machine.Changes {
			if lane := rows.Ready[0]; len(lane.Due) != 0 || lane.Next <= rows.Now ||
				lane.Next > rows.Now.Add(time.Second) {
				t.Errorf("while another server has locked it: %+v at %d", lane, rows.Now)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}, claim(wa, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
}

// If two servers accept one idempotency key at the same time, there is one execution (guarantee
// G9). If they accept one id at the same time, there is one execution too.
func TestOneSubmissionToTwoServersIsOneExecution(t *testing.T) {
	a, b, _ := two(t)
	keyed := func(n byte) *machine.Submit {
		return &machine.Submit{
			Submission: belay.Submission{ID: belay.ExecutionID{n}, Workflow: "w", IdempotencyKey: "k"},
		}
	}
	replies, err := a.during(func(*machine.Rows) { b.ok(keyed(2)) }, keyed(1))
	if err != nil || replies[0].ID != (belay.ExecutionID{2}) || !replies[0].Replayed {
		t.Errorf("the same key: %+v (%v)", replies, err)
	}
	same := func() *machine.Submit {
		return &machine.Submit{Submission: belay.Submission{ID: belay.ExecutionID{3}, Workflow: "w"}}
	}
	if replies, err = a.during(func(*machine.Rows) { b.ok(same()) }, same()); err != nil || !replies[0].Replayed {
		t.Errorf("the same id: %+v (%v)", replies, err)
	}
	counts, err := a.Counts(t.Context())
	if err != nil || counts.Executions[belay.Pending] != 2 {
		t.Errorf("counts %+v (%v), want 2 pending", counts, err)
	}
}

// Two servers that insert the same keys in opposite order cause no deadlock.
func TestKeysOfTwoServersDoNotDeadlock(t *testing.T) {
	a, b, _ := two(t)
	for round := range byte(20) {
		var wg sync.WaitGroup
		for i, s := range []server{a, b} {
			wg.Go(func() {
				var commands []machine.Command
				for n := range byte(20) {
					k := n
					if i == 1 {
						k = 19 - n
					}
					commands = append(commands, &machine.Submit{Submission: belay.Submission{
						ID: belay.ExecutionID{byte(i + 1), round, n}, Workflow: "w",
						IdempotencyKey: string(rune('a'+k)) + string(rune('a'+round)),
					}})
				}
				if _, err := s.during(nil, commands...); err != nil {
					t.Errorf("commit: %v", err)
				}
			})
		}
		wg.Wait()
	}
	counts, err := a.Counts(t.Context())
	if err != nil || counts.Executions[belay.Pending] != 400 {
		t.Errorf("counts %+v (%v), want one execution for each of 400 keys", counts, err)
	}
	noDeadlock(t)
}

func noDeadlock(t *testing.T) {
	t.Helper()
	if log := pgtest.Shared(t).Log(); strings.Contains(log, "deadlock detected") {
		t.Errorf("the server has found a deadlock:\n%s", log)
	}
}

// If the end of a session and a claim of the session are committed on two servers at the same time,
// the second waits for the first. If the claim is first, Due lists the won execution as lost, so
// that it is taken back (guarantee G5). If the end is first, the claim is refused (guarantee G2).
func TestClaimAgainstTheEndOfASession(t *testing.T) {
	a, b, _ := two(t)
	w := a.openWorker(1)
	id := a.submit(1)
	var end func()
	if _, err := a.during(func(*machine.Rows) {
		end = b.waits(func() { b.ok(&machine.End{Worker: w, Dead: "proven"}) })
	}, claim(w, 1, 1)); err != nil {
		t.Fatal(err)
	}
	end()
	if got := a.row(id); got.Worker != w {
		t.Fatalf("the claim came first and yet %s is %s", id, got.State)
	}
	due, err := a.Due(t.Context(), 10)
	if err != nil || len(due.Lost) != 1 || due.Lost[0].Execution != id {
		t.Errorf("lost %+v (%v), want the execution", due.Lost, err)
	}
	w = a.openWorker(2)
	a.submit(2)
	var late machine.Reply
	// in the second attempt, because the first attempt only learns that it needs an exclusive lock
	if _, err := b.duringAttempt(2, func(*machine.Rows) {
		end = a.waits(func() { late = a.try(claim(w, 1, 1)) })
	}, &machine.End{Worker: w}); err != nil {
		t.Fatal(err)
	}
	end()
	if belay.CodeOf(late.Err) != belay.CodeLeaseLost {
		t.Errorf("a claim after the end of its session: %+v", late)
	}
}

// If a heartbeat on one server gives up a claim while another server decides that claim, either the
// claim is refused, or the heartbeat is decided again after the claim and releases the runs that
// the claim has won.
func TestHeartbeatAgainstAClaimInFlight(t *testing.T) {
	a, b, _ := two(t)
	w := a.openWorker(1)
	id := a.submit(1)
	replies, err := a.during(func(*machine.Rows) {
		b.ok(&machine.Heartbeat{Heartbeat: belay.Heartbeat{Worker: w, ClaimSeen: 1}})
	}, claim(w, 1, 1))
	if err != nil || belay.CodeOf(replies[0].Err) != belay.CodeConflict {
		t.Errorf("a claim that was given up meanwhile: %+v (%v)", replies, err)
	}
	if got := a.row(id); got.State != belay.Pending {
		t.Errorf("%s is %s", id, got.State)
	}
}

// If a heartbeat arrives while the reaper of another server ends its expired session, the heartbeat
// waits and is then refused, and the session ends once.
func TestLateHeartbeatAgainstTheReaper(t *testing.T) {
	a, b, clock := two(t)
	w := a.openWorker(1)
	for range 30 { // marks of life (times that a server writes) show that there is no outage
		clock.Advance(time.Second)
		a.ok(&machine.Mark{})
	}
	var beat machine.Reply
	var end func()
	replies, err := a.duringAttempt(2, func(*machine.Rows) {
		end = b.waits(func() { beat = b.try(&machine.Heartbeat{Heartbeat: belay.Heartbeat{Worker: w}}) })
	}, &machine.Expire{Worker: w})
	end()
	if err != nil || replies[0].Err != nil || belay.CodeOf(beat.Err) != belay.CodeLeaseLost {
		t.Errorf("reaper %+v (%v), heartbeat %v: want one end", replies, err, beat.Err)
	}
	rows, err := a.Workers(t.Context(), store.WorkerQuery{Limit: 1})
	if err != nil || rows[0].State != belay.WorkerLost {
		t.Errorf("sessions %+v (%v)", rows, err)
	}
}

// After a drain of a session on one server, a claim of the session on another server wins nothing
// (guarantee G11). A drain that arrives during a claim waits, and the claim keeps the execution
// that it wins.
func TestDrainAgainstClaim(t *testing.T) {
	a, b, _ := two(t)
	w := a.openWorker(1)
	id := a.submit(1)
	a.ok(&machine.Drain{Worker: w})
	if r := b.ok(claim(w, 1, 1)); len(r.Claims) != 0 || !r.Heartbeat.Drain {
		t.Errorf("a claim after the drain: %+v", r)
	}
	w = a.openWorker(2)
	var end func()
	replies, err := a.during(func(*machine.Rows) {
		end = b.waits(func() { b.ok(&machine.Drain{Worker: w}) })
	}, claim(w, 1, 1))
	if err != nil || len(replies[0].Claims) != 1 {
		t.Fatalf("a claim before the drain: %+v (%v)", replies, err)
	}
	end()
	if got := a.row(id); got.Worker != w {
		t.Errorf("%s is %s", id, got.State)
	}
}

// If two children of one parent end on two servers at the same time, both ends are recorded in the
// parent (guarantee G4).
func TestTwoChildrenOfOneParentEndAtOnce(t *testing.T) {
	a, b, _ := two(t)
	w := a.openWorker(1)
	parent := a.run(w, 1)
	var children []belay.Lease
	for i, key := range []string{"a", "b"} {
		id := belay.ChildID(parent.Execution, 1, key)
		a.ok(&machine.Submit{Submission: belay.Submission{ID: id, Workflow: "w", Parent: &parent, ParentKey: key}})
		children = append(children, lease(a.ok(claim(w, int64(i+2), 1)).Claims[0]))
	}
	var end func()
	if _, err := a.during(func(*machine.Rows) {
		end = b.waits(func() { b.ok(settle(children[1])) })
	}, settle(children[0])); err != nil {
		t.Fatal(err)
	}
	end()
	if got := a.row(parent.Execution); got.Open != 0 || got.SignalSeq != got.Seq || got.Seq != 4 {
		t.Errorf("the parent has %d open children, seq %d and its newest signal at %d", got.Open, got.Seq,
			got.SignalSeq)
	}
}

// After an outage of all servers every session is extended by the lost time only once, whichever
// server is first.
func TestTwoServersAfterAnOutageGiveGraceOnce(t *testing.T) {
	a, b, clock := two(t)
	a.openWorker(1)
	before := a.session()
	clock.Advance(time.Minute)
	if _, err := a.during(func(*machine.Rows) { b.ok(&machine.Mark{}) }, &machine.Mark{}); err != nil {
		t.Fatal(err)
	}
	if got, want := a.session().ExpiresAt, before.ExpiresAt.Add(time.Minute); got != want {
		t.Errorf("the session ends %s later than it should", got.Sub(want))
	}
}

func (s server) session() *machine.Worker {
	s.t.Helper()
	rows, err := s.Workers(s.t.Context(), store.WorkerQuery{Limit: 1})
	if err != nil || len(rows) != 1 {
		s.t.Fatalf("%d sessions: %v", len(rows), err)
	}
	return rows[0].Worker
}

// If an execution becomes ready at one server with an old ready time, another server can claim the
// execution as soon as it receives the message (hint) about it, even if the other server expected
// no execution before a later time (its floor).
func TestAHintLowersTheFloor(t *testing.T) {
	a, b, clock := two(t)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan store.Hint)
	listened := make(chan error)
	go func() {
		listened <- b.Listen(ctx, func(h store.Hint) {
			select {
			case heard <- h:
			case <-ctx.Done():
			}
		})
	}()
	go func() { listened <- a.Listen(ctx, func(store.Hint) {}) }()
	defer func() {
		cancel()
		<-listened
		<-listened
	}()
	await := func(what func(store.Hint) bool) {
		t.Helper()
		for over := time.After(20 * time.Second); ; {
			select {
			case h := <-heard:
				if what(h) {
					return
				}
			case <-over:
				t.Fatal("no hint of the other server arrived")
			}
		}
	}
	await(func(h store.Hint) bool { return h.Lost })
	act := func(id belay.ExecutionID, what belay.Action) {
		a.ok(&machine.Act{Control: belay.Control{Execution: id, Action: what}})
	}
	lanes := func(h store.Hint) bool { return len(h.Lanes) > 0 }
	old := a.submit(1)
	await(lanes)
	act(old, belay.ActionPause)
	worker := b.openWorker(1)
	for n := range int64(3) {
		clock.Advance(time.Minute)
		if won := b.ok(claim(worker, n+1, 1)).Claims; len(won) > 0 {
			t.Fatalf("claim %d won a paused execution", n+1)
		}
	}
	act(old, belay.ActionResume)
	await(lanes)
	if won := b.ok(claim(worker, 4, 1)).Claims; len(won) != 1 || won[0].Execution.ID != old {
		t.Errorf("the claim that follows the hint won %d executions", len(won))
	}
}
