package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// pragma runs a pragma on the writer.
func pragma(t *testing.T, s *Store, text string) int64 {
	t.Helper()
	var value int64
	err := s.writer.query(t.Context(), "PRAGMA "+text, func(r columns) error {
		value = r.int(0)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// batch writes executions with large inputs, all or none.
func batch(t *testing.T, s *Store, ids ...belay.ExecutionID) error {
	t.Helper()
	var need machine.Need
	var commands []machine.Command
	for _, id := range ids {
		input := fmt.Appendf(nil, "%q", strings.Repeat("x", 20_000))
		commands = append(commands, &machine.Submit{Submission: belay.Submission{ID: id, Workflow: "w", Input: input}})
		commands[len(commands)-1].Need(&need)
	}
	return s.Commit(t.Context(), need, func(rows *machine.Rows) *machine.Changes {
		changes, _ := machine.Fold(rows, commands)
		return changes
	})
}

// If a commit does not fit on a full disk, none of it is written, and the store works again when
// there is room.
func TestAFullDiskRefusesWholeCommits(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "belay.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	pragma(t, s, fmt.Sprintf("max_page_count = %d", pragma(t, s, "page_count")+40))
	next := byte(0)
	for err == nil {
		next += 2
		err = batch(t, s, belay.ExecutionID{next}, belay.ExecutionID{next + 1})
	}
	if belay.CodeOf(err) != belay.CodeUnavailable || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("full: %s: %v", belay.CodeOf(err), err)
	}
	before, err := s.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := before.Executions[belay.Pending]; n != int64(next)-2 {
		t.Errorf("%d executions, want the %d acknowledged", n, next-2)
	}
	if err := mark(t, s); err != nil {
		t.Errorf("a small commit while the disk is full: %v", err)
	}
	pragma(t, s, "max_page_count = 1000000")
	if err := batch(t, s, belay.ExecutionID{next}, belay.ExecutionID{next + 1}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	rec, err := s.Read(t.Context(), store.Read{Execution: belay.ExecutionID{next + 1}, Spec: true})
	if err != nil || len(rec.Spec.Input) != 20_002 {
		t.Errorf("read back: %v", err)
	}
}

// The log is moved into the database before it grows too large.
func TestTheLogStaysSmall(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "belay.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	s.log.limit = 100
	largest := int64(0)
	for n := range 100 {
		ids := make([]belay.ExecutionID, 5)
		for i := range ids {
			ids[i] = belay.ExecutionID{byte(n), byte(i), 1}
		}
		if err := batch(t, s, ids...); err != nil {
			t.Fatal(err)
		}
		pages, _, err := s.writer.checkpoint(t.Context(), "NOOP")
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, pages)
	}
	if written := pragma(t, s, "page_count"); largest < s.log.limit || largest > (logMost+4)*s.log.limit ||
		written < 2*largest {
		t.Errorf("the log had up to %d pages, with a limit of %d, for a database of %d", largest, s.log.limit, written)
	}
}

// All columns of a dead letter are written.
func TestDeadLettersAreWritten(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "belay.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	letter := machine.DeadLetter{
		Execution: belay.ExecutionID{1}, Generation: 2, Seq: 3, Token: 4, Reason: "lost", Class: belay.ClassLost,
		Message: "gone", At: 5, New: true,
	}
	resolved := letter
	resolved.New, resolved.Resolution, resolved.ResolvedBy, resolved.ResolvedAt = false, "requeued", "me", 6
	resolved.Notes = []machine.LetterNote{{At: 6, By: "me", Text: "why"}}
	err = s.Commit(t.Context(), machine.Need{}, func(*machine.Rows) *machine.Changes {
		return &machine.Changes{DeadLetters: []*machine.DeadLetter{&letter, &resolved}}
	})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	err = s.writer.query(t.Context(), "SELECT concat_ws('|', hex(substr(execution, 1, 1)), generation, seq, "+
		"token, reason, class, message, at, resolution, resolved_by, resolved_at, notes) FROM dead_letters",
		func(r columns) error {
			got += r.text(0)
			return nil
		})
	if want := `01|2|3|4|lost|5|gone|5|requeued|me|6|[{"at":6,"by":"me","text":"why"}]`; err != nil || got != want {
		t.Errorf("dead letter %s, want %s (%v)", got, want, err)
	}
}

// mark writes only the server's mark of life (a time that shows that it runs).
func mark(t *testing.T, s *Store) error {
	t.Helper()
	return s.Commit(t.Context(), machine.Need{}, func(r *machine.Rows) *machine.Changes {
		changes, _ := machine.Fold(r, []machine.Command{&machine.Mark{}})
		return changes
	})
}
