package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/store/sqlite"
)

// stuckStore is a store whose reads of due work, or whose commits, do not return.
type stuckStore struct {
	store.Store
	mu      sync.Mutex
	due     bool
	commits bool
	freed   chan struct{}
}

func (s *stuckStore) wait(when func() bool) {
	s.mu.Lock()
	stands, freed := when(), s.freed
	s.mu.Unlock()
	if stands {
		<-freed
	}
}

func (s *stuckStore) Due(ctx context.Context, limit int) (store.Due, error) {
	s.wait(func() bool { return s.due })
	return s.Store.Due(ctx, limit)
}

func (s *stuckStore) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	s.wait(func() bool { return s.commits })
	return s.Store.Commit(ctx, need, decide)
}

// set makes reads of due work, and commits, block or continue.
func (s *stuckStore) set(due, commits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due, s.commits = due, commits
	if due || commits {
		s.freed = make(chan struct{})
	} else {
		close(s.freed)
	}
}

// An engine that does not search for due work, writes no marks of life (times that show that it
// runs), or commits nothing reports within seconds which of these it fails to do. It reports
// nothing when it works again, and nothing while it has no work to do.
func TestAStalledEngineReportsIt(t *testing.T) {
	for _, c := range []struct {
		name         string
		due, commits bool
		live         bool // a session is open
		what         string
	}{
		{name: "sweeps", due: true, what: "looked for what is due"},
		{name: "commits", commits: true, live: true, what: "committed anything"},
		{name: "marks", due: true, live: true, what: "left a mark of life"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &stuckStore{Store: memory.New(time.Now)}
				e := engine.New(f, engine.Options{Log: slog.New(slog.DiscardHandler)})
				defer e.Close()
				time.Sleep(24 * time.Hour)
				if v := e.Vitals(); v.Trouble() != nil || v.Sweep+v.Mark+v.Commit > 0 {
					t.Fatalf("idle for a day: %+v", v)
				}
				if c.live {
					spec := belay.WorkerSpec{Name: "w", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 1,
						TTL: belay.Duration(time.Hour)}
					must[belay.Session](t)(e.OpenWorker(t.Context(), spec))
					time.Sleep(time.Hour / 2)
					if v := e.Vitals(); v.Trouble() != nil {
						t.Fatalf("with a session that lives: %+v", v)
					}
				}
				f.set(c.due, c.commits)
				time.Sleep(20 * time.Minute)
				v := e.Vitals()
				if what, since := v.Still(); what == "" || since < engine.StillAfter {
					t.Errorf("it has not %q for %s", what, since)
				}
				if err := v.Trouble(); err == nil || !strings.Contains(err.Error(), "stands still") {
					t.Errorf("it says %v", err)
				}
				switch {
				case c.what == "left a mark of life" && v.Mark < engine.StillAfter,
					c.what == "committed anything" && v.Commit < engine.StillAfter,
					c.what == "looked for what is due" && v.Sweep < engine.StillAfter:
					t.Errorf("it should say that it has not %s: %+v", c.what, v)
				}
				f.set(false, false)
				time.Sleep(time.Minute)
				if v := e.Vitals(); v.Trouble() != nil {
					t.Errorf("it goes on, and says %v", v.Trouble())
				}
			})
		})
	}
}

// testClock has a wall clock, which a test can set, and a steady clock, which a test cannot set.
type testClock struct {
	mu    sync.Mutex
	began time.Time
	set   time.Duration
}

func (w *testClock) options() sqlite.Options {
	w.began = time.Now()
	return sqlite.Options{Clock: w.now, Steady: func() time.Duration { return time.Since(w.began) }}
}

func (w *testClock) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.set)
}

func (w *testClock) step(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set += d
}

// logged collects the log of an engine.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// If the wall clock is set forwards or back, the engine logs this once and reports the difference
// in its vitals. If the clock is set forwards by more than every time limit of a run, no run and no
// session ends because of it; delayed executions become due.
func TestAClockThatIsSetIsReported(t *testing.T) {
	w, log := &testClock{}, &logged{}
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "belay.db"), w.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := engine.New(s, engine.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	defer e.Close()
	spec := belay.WorkerSpec{
		Name: "w", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 9, TTL: belay.Duration(time.Minute),
	}
	worker := must[belay.Session](t)(e.OpenWorker(t.Context(), spec)).ID
	limits := belay.Policy{
		Timeout: belay.Duration(10 * time.Minute), RunTimeout: belay.Duration(5 * time.Minute),
		IdleTimeout: belay.Duration(4 * time.Minute),
		MaxAttempts: 1,
	}
	id := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "w", Policy: limits}))[0].ID
	later := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{
		Workflow: "w", DueAt: time.Now().Add(30 * time.Minute),
	}))[0].ID
	lease := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: worker, Number: 1,
		Slots: 1})).Assignments[0].Lease
	beat := func() {
		t.Helper()
		r, err := e.Heartbeat(t.Context(), belay.Heartbeat{
			Worker: worker, ClaimSeen: 1, Holds: []belay.Held{{Execution: id, Token: lease.Token}},
		})
		if err != nil || len(r.Revoked) > 0 {
			t.Fatalf("heartbeat: %+v, %v", r, err)
		}
	}
	beat()
	w.step(time.Hour)
	for n := byte(1); n <= 5; n++ { // each of these commits could end the session, if the hour counted
		must[int64](t)(e.Save(t.Context(), belay.Save{
			Lease: lease, Op: belay.OpID{n}, Kind: belay.KindState, Key: "k",
		}))
		beat()
	}
	if x := must[belay.Execution](t)(e.Execution(t.Context(), id)); x.State != belay.Running || x.Attempt != 1 {
		t.Errorf("after the clock was set forwards by an hour the running execution is %s, attempt %d", x.State,
			x.Attempt)
	}
	if r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: worker, Number: 2,
		Slots: 1})); len(r.Assignments) != 1 || r.Assignments[0].Lease.Execution != later {
		t.Errorf("an execution that was due in half an hour was not claimed after an hour: %+v", r)
	}
	if v := e.Vitals(); v.Leapt.Round(time.Minute) != time.Hour || log.count("set forwards") != 1 {
		t.Errorf("it leapt by %s; logged %d times", v.Leapt, log.count("set forwards"))
	}
	w.step(-2 * time.Hour)
	for n := byte(11); n <= 15; n++ {
		must[int64](t)(e.Save(t.Context(), belay.Save{
			Lease: lease, Op: belay.OpID{n}, Kind: belay.KindState, Key: "k",
		}))
	}
	v := e.Vitals()
	if v.Ahead.Round(time.Minute) != 2*time.Hour || log.count("set back") != 1 {
		t.Errorf("it is ahead by %s; logged %d times", v.Ahead, log.count("set back"))
	}
	if notes := v.Notes(time.Now()); v.Trouble() != nil || len(notes) != 1 ||
		!strings.Contains(notes[0], "2h0m0s ahead") {
		t.Errorf("it takes work (%v) and notes %q", v.Trouble(), notes)
	}
	x := must[belay.Explanation](t)(e.Explain(t.Context(), id))
	if !strings.Contains(strings.Join(x.Facts, "\n"), "2h0m0s ahead") {
		t.Errorf("explained by %q", x.Facts)
	}
	w.step(2 * time.Hour)
	beat()
	if v := e.Vitals(); v.Ahead.Abs() > time.Second || log.count("shows the store's time again") != 1 {
		t.Errorf("put right, it is ahead by %s; logged %d times", v.Ahead, log.count("shows the store's time again"))
	}
}

// A new epoch (a jump of the tokens) that begins while the engine runs, as after a failover, is
// logged once and reported for a week.
func TestANewEpochIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)))
		s, log := memory.New(time.Now), &logged{}
		e := engine.New(s, engine.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		defer e.Close()
		submit := func() {
			must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "w"}))
		}
		submit()
		if v := e.Vitals(); !v.EpochBegan().IsZero() || len(v.Notes(time.Now())) > 0 || log.count("epoch") > 0 {
			t.Errorf("the first epoch is reported: %+v", v)
		}
		s.SetEpoch(machine.NextEpoch(0, machine.At(time.Now()), 0))
		began := time.Now()
		submit()
		submit()
		v := e.Vitals()
		if off := v.EpochBegan().Sub(began).Abs(); off > time.Second || log.count("an epoch has begun") != 1 {
			t.Errorf("it began %s off; logged %d times", off, log.count("an epoch has begun"))
		}
		if notes := v.Notes(time.Now()); len(notes) != 1 || !strings.Contains(notes[0], "may be gone") {
			t.Errorf("noted: %q", notes)
		}
		if notes := v.Notes(time.Now().Add(8 * 24 * time.Hour)); len(notes) != 0 {
			t.Errorf("noted after a week: %q", notes)
		}
	})
}
