package registry

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: a workflow registers, renews and releases; its entry has the fields of the format.
func TestAWorkflowRegistersRenewsAndReleases(t *testing.T) {
	r := open(t)
	c := under(r)
	w := register(t, r, Registration{Name: "nightly", Recipe: "llama", TTL: time.Minute, Preemptible: true})
	text, err := os.ReadFile(filepath.Join(r.path, stateName))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"name", "recipe", "owner_pid", "owner_start_ns", "owner_boot_id",
		"owner_pid_namespace", "started_at", "last_renewed_at", "last_renewed_boot_ns", "ttl_seconds", "preemptible",
		"preempt_signal_path", "version", "workflows"} {
		if !strings.Contains(string(text), `"`+field+`":`) {
			t.Errorf("the state file has no %s:\n%s", field, text)
		}
	}
	c.pass(50 * time.Second)
	if _, err := r.Renew(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	c.pass(50 * time.Second)
	s := list(t, r)
	if names(s) != "nightly" || s.Workflows[0].ExpiresIn != 10*time.Second {
		t.Errorf("the state is %+v", s)
	}
	if err := r.Release(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if s := list(t, r); len(s.Workflows) != 0 {
		t.Errorf("after the release: %s", names(s))
	}
}

// Rule: renewal and release of an entry that was released, whose TTL is over, or that belongs to
// another process are refused with lease_lost and its cause, and change nothing.
func TestALostEntryIsRefused(t *testing.T) {
	r := open(t)
	c := under(r)
	_, other := bystander(t)
	w := register(t, r, Registration{Name: "a", Recipe: "x", TTL: time.Minute})
	foreign := w
	foreign.Owner = other
	refused := func(w Workflow, cause belay.Cause) {
		t.Helper()
		_, renewed := r.Renew(t.Context(), w)
		_, asked := r.Preempted(t.Context(), w)
		_, moved := r.Transfer(t.Context(), w, other)
		for _, err := range []error{renewed, asked, moved, r.Release(t.Context(), w)} {
			if !errors.Is(err, &belay.Error{Code: belay.CodeLeaseLost, Cause: cause}) {
				t.Errorf("the error is %v, want lease_lost, %s", err, cause)
			}
		}
	}
	refused(foreign, belay.CauseReassigned)
	c.pass(time.Minute)
	refused(w, belay.CauseExpired)
	register(t, r, Registration{Name: "a", Recipe: "x", Owner: other}) // another process takes over the name
	refused(w, belay.CauseReassigned)
	if s := list(t, r); names(s) != "a" || s.Workflows[0].Owner != other {
		t.Errorf("the refused calls changed the state: %+v", s)
	}
}

// Rule: a name belongs to one living process at a time; the same process may register it again.
func TestANameHasOneOwner(t *testing.T) {
	r := open(t)
	cmd, other := bystander(t)
	register(t, r, Registration{Name: "a", Recipe: "x", Owner: other})
	_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "x"})
	wantCode(t, err, belay.CodeLeaseHeld)
	if !strings.Contains(err.Error(), other.String()) || !strings.Contains(err.Error(), "since") {
		t.Errorf("the refusal does not say who has the name and since when: %v", err)
	}
	register(t, r, Registration{Name: "a", Recipe: "y", Owner: other})
	if s := list(t, r); names(s) != "a" || s.Workflows[0].Recipe != "y" {
		t.Errorf("the state is %+v", s)
	}
	end(cmd)
	register(t, r, Registration{Name: "a", Recipe: "x"})
	_, err = r.Register(t.Context(), Registration{Name: "b", Recipe: "x", Owner: other})
	wantCode(t, err, belay.CodeNotFound)
}

// Rule: an entry is dead if its owner has ended, has another start time, or was renewed last in an
// earlier boot; if the owner cannot be identified from here, only the TTL ends the entry. A container
// on this machine may have another PID namespace and another boot id.
func TestDeadOwnersAreSwept(t *testing.T) {
	cmd, died := bystander(t)
	_, lives := bystander(t)
	recycled, rebooted, container, foreign := lives, lives, lives, lives
	recycled.StartNS += tick
	rebooted.BootID = "00000000-0000-0000-0000-000000000000"
	container.PIDNamespace++
	nspawn := rebooted
	nspawn.PIDNamespace++
	foreign.BootID, foreign.PIDNamespace, foreign.PID = "", 0, 1<<22+1 // a program that writes the seed's fields only
	r := open(t)
	c := under(r)
	for name, owner := range map[string]Process{"died": died, "lives": lives, "recycled": recycled,
		"rebooted": rebooted, "container": container, "nspawn": nspawn, "foreign": foreign} {
		if err := r.withLock(t.Context(), func(c *change) error {
			w := Workflow{Name: name, Recipe: "x", Owner: owner, TTL: time.Minute, StartedAt: c.wall}
			c.renew(&w)
			if name == "rebooted" {
				w.TTL, w.LastRenewedAt = MaxTTL, c.wall.Add(-c.boot-bootSlack-time.Second)
			}
			c.doc.Workflows = append(c.doc.Workflows, w)
			return c.save()
		}); err != nil {
			t.Fatal(err)
		}
	}
	end(cmd)
	s := list(t, r)
	for _, name := range []string{"lives", "container", "nspawn", "foreign"} {
		if !strings.Contains(names(s), name) {
			t.Errorf("%s was swept", name)
		}
	}
	if len(s.Workflows) != 4 {
		t.Errorf("left are %s", names(s))
	}
	c.pass(time.Minute)
	if s := list(t, r); len(s.Workflows) != 0 {
		t.Errorf("after the TTL: %s", names(s))
	}
}

// Rule: a change of the system time neither ends an entry nor keeps a dead one.
func TestTheSystemTimeDecidesNothing(t *testing.T) {
	r := open(t)
	c := under(r)
	register(t, r, Registration{Name: "a", Recipe: "x", TTL: time.Minute})
	c.wall = c.wall.Add(100 * time.Hour)
	if s := list(t, r); names(s) != "a" {
		t.Error("a step forward ended the entry")
	}
	c.wall, c.boot = c.wall.Add(-300*time.Hour), c.boot+time.Minute
	if s := list(t, r); names(s) != "" {
		t.Error("a step back kept the entry")
	}
}

// Rule: an entry of another program whose renewal lies in the future lives for its TTL from now, not
// for longer.
func TestARenewalInTheFutureCountsFromNow(t *testing.T) {
	r := open(t)
	c := under(r)
	if err := r.withLock(t.Context(), func(c *change) error {
		w := Workflow{Name: "a", Recipe: "x", Owner: Process{PID: 1<<22 + 1}, TTL: time.Minute, StartedAt: c.wall,
			LastRenewedAt: c.wall.AddDate(1000, 0, 0)} // a Duration cannot be that long
		c.doc.Workflows = append(c.doc.Workflows, w)
		return c.save()
	}); err != nil {
		t.Fatal(err)
	}
	if s := list(t, r); names(s) != "a" {
		t.Fatalf("the workflows are %q", names(s))
	}
	c.pass(59 * time.Second)
	if s := list(t, r); names(s) != "a" {
		t.Error("the entry ended before its TTL")
	}
	c.pass(time.Second + time.Microsecond)
	if s := list(t, r); names(s) != "" {
		t.Error("the entry lives for longer than its TTL")
	}
}

// Rule: while a swap is in progress, a workflow of another recipe is refused with EAGAIN, and the
// refusal says who swaps and since when; a workflow of the target recipe is admitted.
func TestASwapRefusesOtherRecipes(t *testing.T) {
	r := open(t)
	s := begin(t, r, "b")
	_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "a"})
	wantCode(t, err, belay.CodeSwapInProgress)
	if !errors.Is(err, syscall.EAGAIN) || belay.CodeOf(err).Exit() != 75 {
		t.Errorf("the refusal is no EAGAIN: %v", err)
	}
	self, _ := Self()
	for _, fact := range []string{`"b"`, self.String(), s.Marker().StartedAt.Format(time.RFC3339)} {
		if !strings.Contains(err.Error(), fact) {
			t.Errorf("the refusal does not name %s: %v", fact, err)
		}
	}
	register(t, r, Registration{Name: "b", Recipe: "b"})
	_, err = r.Begin(t.Context(), "b")
	wantCode(t, err, belay.CodeSwapInProgress)
	if err := s.End(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	register(t, r, Registration{Name: "a", Recipe: "a"})
}

// Rule: names and TTLs that cannot be right are refused, and so are more workflows than the limit.
func TestBadRegistrationsAreRefused(t *testing.T) {
	r := open(t)
	for _, q := range []Registration{
		{Recipe: "x"}, {Name: "a"}, {Name: strings.Repeat("a", MaxName+1), Recipe: "x"},
		{Name: "a\x1b[2J", Recipe: "x"},
		{Name: "a", Recipe: "x\ny"}, {Name: "a", Recipe: "x", TTL: -1}, {Name: "a", Recipe: "x", TTL: MaxTTL + 1},
		{Name: "a", Recipe: "x", SignalPath: filepath.Join(r.path, signalsName, "x.preempt")},
		{Name: "\xff", Recipe: "x"},
	} {
		_, err := r.Register(t.Context(), q)
		wantCode(t, err, belay.CodeInvalid)
	}
	if err := r.withLock(t.Context(), func(c *change) error {
		for range MaxWorkflows {
			w := Workflow{Name: "w", Recipe: "x", Owner: r.self, TTL: time.Hour}
			c.renew(&w)
			c.doc.Workflows = append(c.doc.Workflows, w)
		}
		return c.save()
	}); err != nil {
		t.Fatal(err)
	}
	_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "x"})
	wantCode(t, err, belay.CodeQueueFull)
}

// Rule: the form of an entry that the registry writes is the one that it reads, whatever the entry
// contains; and package json reads and writes the same.
func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678900000, time.UTC)
	for _, w := range []Workflow{
		{Name: "a", Recipe: "b", StartedAt: at, LastRenewedAt: at},
		{Name: "\"\\<ä\u2028\x7f", Recipe: "\t",
			Owner:     Process{PID: -1, StartNS: 1<<64 - 1, BootID: "x", PIDNamespace: 7},
			StartedAt: at, LastRenewedAt: at.Add(1), TTL: 1500 * time.Millisecond, Preemptible: true,
			PreemptSignalPath: "/x/signals/y.preempt", renewedBoot: 1 << 60},
		{TTL: MaxTTL, StartedAt: at, LastRenewedAt: at},
	} {
		text, err := w.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var read Workflow
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, w) {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
		doc := document{Version: formatVersion, Workflows: []Workflow{w, w}}
		file, err := doc.encode()
		if err != nil {
			t.Fatal(err)
		}
		if own, ok := decodeOwn(file); ok != (w.Owner.PID >= 0) || ok && !reflect.DeepEqual(own, doc) {
			t.Errorf("%s is read as %+v, %v", file, own, ok)
		}
		if all, err := decodeAny(file); err != nil || !reflect.DeepEqual(all, doc) {
			t.Errorf("package json reads %s as %+v, %v", file, all, err)
		}
		reference, err := json.Marshal(w.entry())
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(reference, &read); err != nil || !reflect.DeepEqual(read, w) {
			t.Errorf("package json writes %s: %+v, %v", reference, read, err)
		}
	}
}
