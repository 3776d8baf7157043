package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
)

// givenTokens records, for each execution, the highest token that the server gave to an owner.
type givenTokens struct {
	mu      sync.Mutex
	tokens  map[belay.ExecutionID]belay.Token
	highest belay.Token
	claims  int
}

func (d *givenTokens) note(l belay.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tokens[l.Execution] = max(d.tokens[l.Execution], l.Token)
	d.highest = max(d.highest, l.Token)
	d.claims++
}

func (d *givenTokens) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims
}

// grab claims executions from a server and never completes any. Its sessions expire after a second,
// so that it claims the same executions again and again. It ends when the server no longer answers.
func (a api) grab(all *sync.WaitGroup, d *givenTokens) {
	all.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		b, err := client.Dial(ctx, a.url, client.Patience(time.Millisecond), client.Logger(quiet))
		if err != nil {
			return
		}
		defer b.Close()
		for ctx.Err() == nil {
			s, err := b.OpenWorker(ctx, belay.WorkerSpec{
				ID: belay.WorkerID(embedded.NewID()), Name: "grab", Workflows: []belay.Registration{{Workflow: "w"}},
				Capacity: 20, TTL: belay.MinTTL,
			})
			if err != nil {
				return
			}
			r, err := b.Claim(ctx, belay.ClaimRequest{Worker: s.ID, Number: 1, Slots: 20, Wait: time.Second})
			if err != nil {
				return
			}
			for _, won := range r.Assignments {
				d.note(won.Lease)
			}
		}
	})
}

// load is a server with clients that submit and owners that claim.
type load struct {
	p           *place
	told        acknowledgements
	givenTokens givenTokens
	x           *started
	all         sync.WaitGroup
}

func (l *load) begin() {
	l.p.t.Helper()
	var a api
	l.x, a = l.p.serve()
	a.hammer(&l.all, &l.told, 3)
	a.grab(&l.all, &l.givenTokens)
	had, owned := len(l.told.list()), l.givenTokens.count()
	l.x.until("the server is under load", func() bool {
		return len(l.told.list()) > had+50 &&
			l.givenTokens.count() > owned+20
	})
}

func (l *load) kill() {
	l.p.t.Helper()
	l.x.signal(syscall.SIGKILL)
	l.x.wait(patience)
	l.all.Wait()
}

// Rule: a backup made under load, while the server is killed, contains every write that was
// acknowledged before the backup began. After the restore, the server gives out no token a second
// time, not even one that it gave out after the backup, and reclaims the executions that had owners
// (guarantees G1, G3 and G4).
func TestABackupUnderLoadIsRestored(t *testing.T) {
	t.Parallel()
	r := dice(t)
	l := &load{p: newPlace(t), givenTokens: givenTokens{tokens: make(map[belay.ExecutionID]belay.Token)}}
	var file string
	var before []string
	for round := range 3 {
		l.begin()
		file, before = l.p.path(fmt.Sprintf("backup%d.db", round)), l.told.list()
		backup := l.p.start(l.p.command("backup", file))
		if round < 2 {
			backup.after(between(r, 0, 60*time.Millisecond))
			l.kill()
		}
		if got := backup.wait(patience).want(0); got.out != file+"\n" {
			t.Errorf("the backup prints more than the file\n%s", got)
		}
		l.p.belay("restore", "--verify", file).want(0)
	}
	after := l.givenTokens.count()
	l.x.until("tokens are given out after the backup", func() bool { return l.givenTokens.count() > after+50 })
	l.kill()

	q := &place{t: t, root: l.p.root, data: l.p.path("restored"), cwd: l.p.cwd}
	q.belay("restore", file).want(0)
	store := q.reader()
	for _, text := range before {
		if x, err := store.Execution(t.Context(), parse(t, text)); err != nil ||
			!strings.Contains(string(x.Input), `"client"`) {
			t.Fatalf("G3: acknowledged before the backup, and lost: %s %v", x.Input, err)
		}
	}
	ended := 0
	workers, err := store.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		if !w.State.Ended() {
			t.Errorf("session %s from before the backup goes on", w.ID)
		}
		if strings.Contains(w.EndReason, "restored from a backup") {
			ended++
		}
	}
	_ = store.Close()
	_, a := q.serve()
	again := givenTokens{tokens: make(map[belay.ExecutionID]belay.Token)}
	var all sync.WaitGroup
	a.grab(&all, &again)
	until(t, "executions that were owned before are owned again", func() bool {
		again.mu.Lock()
		defer again.mu.Unlock()
		met := 0
		for id := range again.tokens {
			if l.givenTokens.tokens[id] != 0 {
				met++
			}
		}
		return met > 20
	})
	taken := 0
	again.mu.Lock()
	defer again.mu.Unlock()
	for id, token := range again.tokens {
		if token <= l.givenTokens.highest {
			t.Errorf("G1: token %d after %d", token, l.givenTokens.highest)
		}
		history := q.history(id) // p.history also checks that the history is well formed
		for i, ev := range history {
			if ev.Kind == "started" && ev.Token == token && i > 0 && history[i-1].Kind == "lost" &&
				history[i-1].Token < 1<<32 {
				taken++
			}
		}
	}
	t.Logf("%d acknowledged before the backup, %d in all; %d claims; %d sessions ended by the restore, %d runs "+
		"taken back", len(before), len(l.told.list()), l.givenTokens.claims, ended, taken)
	if taken == 0 || ended == 0 {
		t.Error("no execution had an owner when the backup was made: the test proves nothing")
	}
}

// Rule: a killed backup leaves no file that a user could take for a complete backup.
func TestAKilledBackupLeavesNoFile(t *testing.T) {
	t.Parallel()
	r := dice(t)
	p := newPlace(t)
	p.belay("submit", "w").want(0)
	to := p.path("backups")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		x := p.start(p.command("backup", filepath.Join(to, "b.db")))
		x.after(between(r, 0, 40*time.Millisecond))
		x.signal(syscall.SIGKILL)
		x.wait(patience)
		if _, err := os.Stat(filepath.Join(to, "b.db")); err == nil {
			p.belay("restore", "--verify", filepath.Join(to, "b.db")).want(0)
			if err := os.Remove(filepath.Join(to, "b.db")); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.belay("backup", filepath.Join(to, "b.db")).want(0)
}

// Rule: belay restore over existing data, killed at any moment, leaves either the old database or
// the new one, complete, and never loses the old one.
func TestAKilledRestoreLeavesAWholeDatabase(t *testing.T) {
	t.Parallel()
	r := dice(t)
	p := newPlace(t)
	p.belay("submit", "w").want(0)
	p.belay("backup", p.path("b.db")).want(0)
	p.belay("submit", "w").want(0)
	killed := 0
	for range 12 {
		x := p.start(p.command("restore", p.path("b.db"), "--force"))
		x.after(between(r, 0, 60*time.Millisecond))
		x.signal(syscall.SIGKILL)
		done := x.wait(patience).code == 0
		if !done {
			killed++
		}
		n := len(p.executions())
		if n != 1 && n != 2 || done && n != 1 {
			t.Fatalf("%d executions; done: %t", n, done)
		}
		p.sound()
		aside, err := filepath.Glob(filepath.Join(p.data, "before-restore-*", "belay.db"))
		if err != nil || n == 1 && len(aside) == 0 {
			t.Fatalf("the old database is gone: %v", err)
		}
	}
	if killed == 0 {
		t.Error("no restore was killed: the test proves nothing")
	}
	p.belay("restore", p.path("b.db"), "--force").want(0)
	if n := len(p.executions()); n != 1 {
		t.Errorf("%d executions", n)
	}
}

// Rule: backup, restore and migrate refuse invalid requests with the reason, before they change
// anything.
func TestRefusedBackupsAndRestores(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.belay("backup", p.path("b.db")).want(belay.CodeNotFound.Exit()).saying("no Belay data")
	p.belay("submit", "w").want(0)
	p.belay("backup", p.path("b.db")).want(0)
	torn := p.path("torn.db")
	text := []byte(read(t, p.path("b.db")))
	for i := range 3000 {
		text[4*4096+i] ^= 0x5a
	}
	if err := os.WriteFile(torn, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []refusal{
		{"a backup over a file", []string{"backup", p.path("b.db")}, belay.CodeConflict.Exit(), "--force"},
		{"a backup through a server", []string{
			"backup", p.path("c.db"), "--server", "http://127.0.0.1:1",
		}, belay.CodeConflict.Exit(), "on the machine that has the server's data"},
		{"a backup of PostgreSQL", []string{"backup", p.path("c.db"), "--store", "postgres://nobody@127.0.0.1:1/x"},
			codeInvalid, "pg_dump"},
		{"a backup beside its data", []string{"backup", filepath.Join(p.data, "b.db")}, codeInvalid, "elsewhere"},
		{"a backup of no name", []string{"backup"}, codeUsage, "file"},
		{"a restore over data", []string{"restore", p.path("b.db")}, belay.CodeConflict.Exit(), "not empty"},
		{"a restore of nothing", []string{
			"restore", p.path("nowhere"), "--data", p.path("new"),
		}, belay.CodeNotFound.Exit(), "no file"},
		{"a restore of a file that is no backup", []string{"restore", os.Args[0], "--data", p.path("new")}, codeInvalid,
			"no database"},
		{"a restore of damage", []string{
			"restore", torn, "--data", p.path("new"),
		}, belay.CodeInternal.Exit(), "damaged"},
		{"a look at damage", []string{"restore", "--verify", torn}, belay.CodeInternal.Exit(), "damaged"},
		{"an epoch of a file", []string{"restore", "--epoch", p.path("b.db")}, codeUsage, "--store"},
		{"an epoch of nothing", []string{"restore", "--epoch", "--data", p.path("new")}, belay.CodeNotFound.Exit(),
			"no Belay data"},
		{"a migration through a server", []string{
			"migrate", "--server", "http://127.0.0.1:1",
		}, belay.CodeConflict.Exit(), "--store"},
		{"a migration of an unknown kind of store", []string{"migrate", "--store", "mysql:x"}, codeInvalid,
			"sqlite:DIR"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			r := p.belay(c.args...)
			if r.code != c.code {
				t.Errorf("exit code %d, want %d\n%s", r.code, c.code, r)
			}
			one(t, r, c.says)
		})
	}
	p.sound()
	x, _ := p.serve()
	for _, args := range [][]string{{"restore", p.path("b.db"), "--force"}, {"restore", "--epoch"}, {"migrate"}} {
		p.belay(args...).want(belay.CodeConflict.Exit()).saying("belay serve")
	}
	p.belay("migrate", "--dry-run").want(0).saying("up to date")
	p.belay("backup", p.path("c.db"), "-o", "json").want(0)
	x.signal(syscall.SIGTERM)
	x.wait(patience).want(0)
}

// Rule: the JSON output of backup and restore contains the same facts as their text for people.
func TestBackupReportsTheSameToProgramsAndPeople(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := strings.TrimSpace(p.belay("submit", "w", "--input", `{"n":1}`).want(0).out)
	var made embedded.Snapshot
	decode(t, p.belay("backup", p.root, "-o", "json").want(0).out, &made)
	info, err := os.Stat(made.File)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != made.Bytes || made.Executions != 1 ||
		made.Events != 1 {
		t.Errorf("%+v: %v, %v", made, info, err)
	}
	p.belay("restore", made.File, "--force").want(0)
	if x := p.execution(parse(t, id)); string(x.Input) != `{"n":1}` {
		t.Errorf("%+v", x)
	}
	var epoch struct{ Epoch, Ended int64 }
	first := p.belay("restore", "--epoch", "-o", "json").want(0).out
	decode(t, first, &epoch)
	if was := belay.Token(epoch.Epoch); was <= made.Epoch {
		t.Errorf("epoch %d after %d", was, made.Epoch)
	}
	var steps []embedded.Migration
	if err := json.Unmarshal([]byte(p.belay("migrate", "--dry-run", "--data", p.path("new"), "-o", "json").want(0).out),
		&steps); err != nil || len(steps) < 2 ||
		!strings.Contains(steps[0].SQL, "CREATE TABLE executions") {
		t.Errorf("%d steps: %v", len(steps), err)
	}
	if _, err := os.Stat(p.path("new")); err == nil {
		t.Error("a dry run has changed something")
	}
}
