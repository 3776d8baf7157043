package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// write replaces the state file, as another program could.
func write(t *testing.T, r *Registry, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.path, stateName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// planted is a state file with a workflow of a living process and a signal path.
func planted(t *testing.T, path string, ttl float64) string {
	t.Helper()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	doc := document{Version: 1, Workflows: []Workflow{{
		Name: "bad", Recipe: "a", Owner: self, TTL: time.Duration(ttl * float64(time.Second)),
		LastRenewedAt: time.Now(), StartedAt: time.Now(), Preemptible: true, PreemptSignalPath: path,
	}}}
	text, err := doc.encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Rule: a signal path that another program has written into the state file makes the registry
// neither write nor remove a file, wherever it points, unless it is a regular name in the directory
// signals. The attacker may also have put links and directories there.
func TestHostileSignalPathsDoNothing(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "precious.preempt")
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	absent := filepath.Join(filepath.Dir(victim), "new.preempt")
	inDir := func(r *Registry, name string) string { return filepath.Join(r.path, signalsName, name) }
	attacks := map[string]func(t *testing.T, r *Registry) string{
		"elsewhere": func(*testing.T, *Registry) string { return victim },
		"absent":    func(*testing.T, *Registry) string { return absent },
		"up": func(_ *testing.T, r *Registry) string {
			return r.path + "/signals/../../" + filepath.Base(filepath.Dir(victim)) + "/precious.preempt"
		},
		"state":    func(_ *testing.T, r *Registry) string { return filepath.Join(r.path, stateName) },
		"relative": func(*testing.T, *Registry) string { return "../precious.preempt" },
		"NUL":      func(_ *testing.T, r *Registry) string { return inDir(r, "a\x00.preempt") },
		"link to a file": func(t *testing.T, r *Registry) string {
			if err := os.Symlink(victim, inDir(r, "l.preempt")); err != nil {
				t.Fatal(err)
			}
			return inDir(r, "l.preempt")
		},
		"link to nothing": func(t *testing.T, r *Registry) string {
			if err := os.Symlink(absent, inDir(r, "l.preempt")); err != nil {
				t.Fatal(err)
			}
			return inDir(r, "l.preempt")
		},
		"linked directory": func(t *testing.T, r *Registry) string {
			if err := os.Remove(filepath.Join(r.path, signalsName)); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Dir(victim), filepath.Join(r.path, signalsName)); err != nil {
				t.Fatal(err)
			}
			return inDir(r, "precious.preempt")
		},
		"directory": func(t *testing.T, r *Registry) string {
			if err := os.Mkdir(inDir(r, "d.preempt"), 0o700); err != nil {
				t.Fatal(err)
			}
			return inDir(r, "d.preempt")
		},
		"other suffix": func(t *testing.T, r *Registry) string {
			if err := os.WriteFile(inDir(r, "other"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return inDir(r, "other")
		},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			if err := os.Mkdir(filepath.Join(r.path, signalsName), 0o700); err != nil {
				t.Fatal(err)
			}
			path := attack(t, r)
			write(t, r, planted(t, path, 60))
			if got := names(list(t, r)); got != "bad" {
				t.Fatalf("the workflows are %q", got)
			}
			s := begin(t, r, "b")
			_, _ = s.Conflicts(t.Context()) // with a linked directory this is an error
			_ = s.End(t.Context(), nil)
			write(t, r, planted(t, path, 0)) // the entry is swept now
			if s := list(t, r); len(s.Workflows) != 0 {
				t.Error("the entry was not swept")
			}
			if text, err := os.ReadFile(victim); string(text) != "mine" {
				t.Errorf("the file elsewhere has %q, %v", text, err)
			}
			if _, err := os.Lstat(absent); err == nil {
				t.Error("a file elsewhere was created")
			}
			if name == "other suffix" {
				if _, err := os.Stat(path); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Rule: a registration with a signal path outside the directory signals is refused.
func TestASignalPathElsewhereIsRefused(t *testing.T) {
	r := open(t)
	for _, path := range []string{"/etc/passwd", "/tmp/x.preempt", "x.preempt", "signals/x.preempt",
		r.path + "/signals/../x.preempt", r.path + "/signals/.preempt", r.path + "/other/signals/x.preempt",
		r.path + "/signals/x", r.path + "/signals/a/x.preempt"} {
		_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "a", Preemptible: true, SignalPath: path})
		wantCode(t, err, belay.CodeInvalid)
	}
	path := r.path + "/signals/mine.preempt"
	w := register(t, r, Registration{Name: "a", Recipe: "a", Preemptible: true, SignalPath: path})
	if w.PreemptSignalPath != path {
		t.Errorf("the path is %s", w.PreemptSignalPath)
	}
}

// Rule: two names of one process have two signal files, also if the names differ only in characters
// that a path cannot have, or only at their ends.
func TestSignalPathsDoNotCollide(t *testing.T) {
	r := open(t)
	long := strings.Repeat("n", 100)
	paths := make(map[string]bool)
	for _, name := range []string{"a/b", "a_b", "a.b", long + "1", long + "2"} {
		w := register(t, r, Registration{Name: name, Recipe: "a", Preemptible: true})
		if _, ok := signalFile(w.PreemptSignalPath); !ok || paths[w.PreemptSignalPath] {
			t.Errorf("%s has the path %s", name, w.PreemptSignalPath)
		}
		paths[w.PreemptSignalPath] = true
	}
}

// Rule: links and other things in the place of the registry's files are refused, and their targets
// stay as they are.
func TestFilesThatAreNoFilesAreRefused(t *testing.T) {
	for _, name := range []string{stateName, lockName, swapName, logName, freshName} {
		for kind, plant := range map[string]func(path, victim string) error{
			"link": func(path, victim string) error { return os.Symlink(victim, path) },
			"pipe": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
			"dir":  func(path, _ string) error { return os.Mkdir(path, 0o700) },
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				r := open(t)
				victim := filepath.Join(t.TempDir(), "victim")
				if err := os.WriteFile(victim, []byte("{}"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := plant(filepath.Join(r.path, name), victim); err != nil {
					t.Fatal(err)
				}
				s, err := r.Begin(t.Context(), "b")
				if err == nil {
					err = s.End(t.Context(), nil)
				}
				// a link or pipe under the temporary name is removed; everything else is refused
				if (err == nil) != (name == freshName && kind != "dir") {
					t.Errorf("the error is %v", err)
				}
				if text, _ := os.ReadFile(victim); string(text) != "{}" {
					t.Errorf("the target of the link has %q", text)
				}
			})
		}
	}
}

// Rule: a directory into which every user may write is refused.
func TestAnOpenDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir)
	wantCode(t, err, belay.CodeForbidden)
	_, err = List(t.Context(), dir)
	if err != nil {
		t.Errorf("a directory without a registry: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("a refused directory got the file %s", entries[0].Name())
	}
}

// Rule: the files belong to the owner of the directory, and to its group if the group may write to
// the directory.
func TestFilesBelongToTheirUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act in a directory of another user")
	}
	for mode, want := range map[os.FileMode]os.FileMode{0o700: 0o600, 0o770: 0o660} {
		dir := t.TempDir()
		if err := os.Chown(dir, 1234, 5678); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		self, _ := Self()
		register(t, r, Registration{Name: "a", Recipe: "a", Owner: self, Preemptible: true})
		s := begin(t, r, "b")
		if _, err := s.Conflicts(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || path == dir {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			stat, _ := info.Sys().(*syscall.Stat_t)
			bits := want
			if d.IsDir() {
				bits = mode
			}
			if stat.Uid != 1234 || stat.Gid != 5678 || info.Mode().Perm() != bits {
				return fmt.Errorf("%s has mode %s, user %d, group %d", path, info.Mode(), stat.Uid, stat.Gid)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Rule: in a directory of a group, each file has the group's rights from the moment at which other
// processes can see it, and a file that a killed process has left without them gets them.
func TestFilesOfAGroupAreShared(t *testing.T) {
	r := open(t)
	if err := os.Chmod(r.path, 0o770); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{lockName, swapName, logName} {
		if err := os.WriteFile(filepath.Join(r.path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(r.path, signalsName), 0o700); err != nil {
		t.Fatal(err)
	}
	_, other := bystander(t)
	register(t, r, Registration{Name: "a", Recipe: "a", Owner: other, Preemptible: true})
	s := begin(t, r, "b")
	if _, err := s.Conflicts(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.WalkDir(r.path, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == r.path {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen++
		if bits := info.Mode().Perm(); bits != 0o660 && !d.IsDir() || bits != 0o770 && d.IsDir() {
			t.Errorf("%s has the mode %s", path, info.Mode())
		}
		if strings.HasPrefix(d.Name(), ".new-") {
			t.Errorf("%s is left", path)
		}
		return nil
	})
	if err != nil || seen != 6 {
		t.Errorf("%d files, %v", seen, err)
	}
}

// Rule: while a file in a directory of a group is made, it has no name under which another process
// would find it without the group's rights.
func TestAFileOfAGroupIsNeverSeenHalfMade(t *testing.T) {
	r := open(t)
	if err := os.Chmod(r.path, 0o770); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.path, lockName)
	stop, looked := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			info, err := os.Stat(path)
			if err == nil && info.Mode().Perm() != 0o660 {
				looked <- fmt.Errorf("the lock had the mode %s", info.Mode())
				return
			}
			select {
			case <-stop:
				looked <- nil
				return
			default:
			}
		}
	}()
	for range 300 {
		if _, err := r.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-looked; err != nil {
		t.Error(err)
	}
}

// Rule: a damaged state file is kept under another name and reported; workflows can register then,
// but no swap begins before Repair. A swap that was in progress still refuses everybody.
func TestADamagedFileIsQuarantined(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "garbage": "\x00\x01", "half": `{"version": 1, "workflows": [{"name": "a"`,
		"type": `{"workflows": {"a": 1}}`, "version": `{"version": -1}`, "long": strings.Repeat(" ", maxState+1),
		"list": `[]`, "number": `{"version": 1, "workflows": [{"name": "a", "owner_pid": 1e400}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			write(t, r, text)
			_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "a"})
			wantCode(t, err, belay.CodeConflict)
			q := list(t, r).Quarantined
			if q == nil || !strings.Contains(err.Error(), q.File) {
				t.Fatalf("the error does not name the copy %+v: %v", q, err)
			}
			if kept, err := os.ReadFile(filepath.Join(r.path, q.File)); err != nil || string(kept) != text {
				t.Errorf("the copy differs: %v", err)
			}
			register(t, r, Registration{Name: "a", Recipe: "a"})
			_, err = r.Begin(t.Context(), "b")
			wantCode(t, err, belay.CodeConflict)
			if found, err := r.Repair(t.Context()); err != nil || found == nil || found.File != q.File {
				t.Fatalf("repair found %+v, %v", found, err)
			}
			begin(t, r, "b")
			if got := events(t, r); got != "quarantined repaired begin" {
				t.Errorf("the log has %s", got)
			}
		})
	}
	r := open(t)
	begin(t, r, "b")
	write(t, r, "")
	if _, err := r.List(t.Context()); err == nil {
		t.Error("the damage was not reported")
	}
	_, err := r.Register(t.Context(), Registration{Name: "b", Recipe: "b"})
	wantCode(t, err, belay.CodeSwapInProgress)
}

// Rule: the error for an entry that was lost with the state file wraps ErrStateLost; the error for an
// entry that was released does not.
func TestALostStateFileIsNoRelease(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, r *Registry){
		"removed": func(t *testing.T, r *Registry) {
			if err := os.Remove(filepath.Join(r.path, stateName)); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(t *testing.T, r *Registry) {
			write(t, r, "{")
			_, _ = r.List(t.Context())
		},
		"replaced": func(t *testing.T, r *Registry) { write(t, r, `{"version": 1, "workflows": []}`) },
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t)
			w := register(t, r, Registration{Name: "a", Recipe: "a"})
			w, err := r.Renew(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			b := register(t, r, Registration{Name: "b", Recipe: "a"})
			if err := r.Release(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Renew(t.Context(), b); errors.Is(err, ErrStateLost) {
				t.Errorf("a released entry: %v", err)
			}
			lose(t, r)
			register(t, r, Registration{Name: "b", Recipe: "a"})
			_, err = r.Renew(t.Context(), w)
			wantCode(t, err, belay.CodeLeaseLost)
			if !errors.Is(err, ErrStateLost) {
				t.Errorf("a lost entry: %v", err)
			}
		})
	}
}

// Rule: at most maxDamaged copies of damaged state files are kept, the newest.
func TestDamagedCopiesAreBounded(t *testing.T) {
	r := open(t)
	c := under(r)
	for range maxDamaged + 3 {
		c.pass(time.Second)
		write(t, r, "{")
		_, err := r.List(t.Context())
		wantCode(t, err, belay.CodeConflict)
	}
	copies, err := filepath.Glob(filepath.Join(r.path, damagedPrefix+"*"))
	if err != nil || len(copies) != maxDamaged {
		t.Errorf("%d copies are left, %v", len(copies), err)
	}
	if q := list(t, r).Quarantined; q == nil || filepath.Join(r.path, q.File) != copies[len(copies)-1] {
		t.Errorf("the newest copy is not %+v", q)
	}
}

// Rule: a state file that the next operation would take for damaged is not written.
func TestAStateThatIsTooLongIsNotWritten(t *testing.T) {
	r := open(t)
	// "<" needs six bytes when Belay writes it
	write(t, r, `{"workflows": [{"name": "`+strings.Repeat("<", maxState/2)+
		`", "recipe": "a", "owner_pid": 1, "ttl_seconds": 60, "last_renewed_at": "2999-01-02T03:04:05Z"}]}`)
	_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "a"})
	wantCode(t, err, belay.CodeQueueFull)
	if copies, _ := filepath.Glob(filepath.Join(r.path, damagedPrefix+"*")); len(copies) > 0 {
		t.Error("the file was taken for damaged")
	}
}

// Rule: a file of a newer version is refused and stays as it is.
func TestANewerFileIsRefused(t *testing.T) {
	r := open(t)
	text := `{"version": 2, "workflows": "another form"}`
	write(t, r, text)
	_, err := r.Register(t.Context(), Registration{Name: "a", Recipe: "a"})
	wantCode(t, err, belay.CodeConflict)
	if !strings.Contains(err.Error(), "newer") {
		t.Errorf("the error is %v", err)
	}
	if _, err := r.List(t.Context()); belay.CodeOf(err) != belay.CodeConflict {
		t.Errorf("list: %v", err)
	}
	if kept, _ := os.ReadFile(filepath.Join(r.path, stateName)); string(kept) != text {
		t.Errorf("the file is now %s", kept)
	}
}

// FuzzState: whatever the state file contains, an operation ends without a panic, keeps the
// content, and the next operation works.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"workflows":[{"name":"a","recipe":"b","owner_pid":1,"ttl_seconds":-1}]}`))
	f.Add([]byte(`{"workflows":[{"ttl_seconds":1e308,"preempt_signal_path":"/signals/a.preempt"}],"swap_in_progress":{}}`))
	f.Add([]byte(`{"swap_in_progress":{"holder_pid":-1,"started_at":"2026-01-02T03:04:05Z"},"quarantined":{}}`))
	f.Add([]byte("{\"version\":1,\n\"workflows\": [\n{\"name\":\"a\",\"recipe\":\"b\",\"owner_pid\":1," +
		"\"owner_start_ns\":2,\"owner_boot_id\":\"x\",\"owner_pid_namespace\":3,\"started_at\":\"2026-01-02T03:04:05Z\"," +
		"\"last_renewed_at\":\"2026-01-02T03:04:05Z\",\"last_renewed_boot_ns\":4,\"ttl_seconds\":60.5," +
		"\"preempt_signal_path\":\"/signals/a.preempt\",\"preemptible\":true},\n{\"name\":\"a\"}\n]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if own, ok := decodeOwn(data); ok {
			if all, err := decodeAny(data); err != nil || !reflect.DeepEqual(own, all) {
				t.Errorf("the two ways to read differ: %+v, %+v, %v", own, all, err)
			}
		}
		r := open(t)
		write(t, r, string(data))
		if _, err := r.List(t.Context()); err != nil && belay.CodeOf(err) != belay.CodeConflict {
			t.Fatal(err)
		}
		_, err := r.Register(t.Context(), Registration{Name: "fuzz", Recipe: "fuzz"})
		if doc, derr := decode(data); derr == nil && doc.Version > formatVersion {
			return
		}
		switch belay.CodeOf(err) {
		case belay.CodeLeaseHeld, belay.CodeQueueFull:
		default:
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
