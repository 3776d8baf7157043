package test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: for a data directory that it cannot make or write, belay prints one clear line and ends
// with a documented exit code, which differs from the exit code of a bug.
func TestDataDirectoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := p.path("file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := p.path("closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	dirs := []string{
		file, filepath.Join(file, "below"), "/proc/self/belay", filepath.Join(closed, strings.Repeat("x", 300)),
	}
	if os.Geteuid() != 0 {
		dirs = append(dirs, filepath.Join(closed, "below"), closed)
	} else {
		dirs = append(dirs, p.mount("ro", "size=1m,ro"))
	}
	for _, dir := range dirs {
		r := p.belay("run", "--data", dir, "--repo", "none", "--", "true")
		if !slices.Contains([]int{codeCannot, 77, 69}, r.code) {
			t.Errorf("exit code %d, want 73, 77 or 69\n%s", r.code, r)
		}
		one(t, r, dir[:min(len(dir), 40)])
	}
	if read(t, file) != "mine" {
		t.Error("a file in the way was changed")
	}
	p.clean()
}

// mount mounts a small file system. Only root may call it.
func (p *place) mount(name, options string) string {
	p.t.Helper()
	dir := p.path(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	flags := uintptr(0)
	if o, ok := strings.CutSuffix(options, ",ro"); ok {
		options, flags = o, syscall.MS_RDONLY
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		p.t.Fatalf("mount a tmpfs: %v", err)
	}
	p.t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			p.t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// needsMount skips the test if the user of the test cannot mount a file system.
func needsMount(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
}

// Rule: on a disk that is full from the beginning, belay run refuses the job in one line. No
// acknowledged write is lost, and the same command works once the disk has room.
func TestDiskFullAtTheStart(t *testing.T) {
	t.Parallel()
	needsMount(t)
	p := newPlace(t)
	disk := p.mount("disk", "size=4m")
	p.data = filepath.Join(disk, "data")
	p.run("--repo", "none", "--key", "before", "--", "echo", "before").want(0)
	full := fill(t, disk)
	r := p.run("--repo", "none", "--key", "k", "--", "echo", "ran")
	if !slices.Contains([]int{codeCannot, 69}, r.code) {
		t.Errorf("exit code %d, want 69 or 73\n%s", r.code, r)
	}
	one(t, r, "disk")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	p.run("--repo", "none", "--key", "before", "--", "echo", "before").want(0).saying("has ended already")
	p.run("--repo", "none", "--key", "k", "--", "echo", "ran").want(0)
	p.clean()
	p.sound()
}

// fill writes a file until the disk is full.
func fill(t *testing.T, disk string) string {
	t.Helper()
	name := filepath.Join(disk, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	return name
}

// Rule: when the disk fills up while a command runs, belay freezes the command and says so in one
// line, and nothing is lost: when the disk has room again, the job continues to its end (guarantee
// G3).
func TestDiskFullInTheMiddle(t *testing.T) {
	t.Parallel()
	needsMount(t)
	p := newPlace(t)
	disk := p.mount("disk", "size=8m")
	p.data = filepath.Join(disk, "data")
	free := p.path("free")
	x := p.start(p.command("run", "--repo", "none", "--key", "k", "--step", "one=echo one",
		"--step", "two=echo two; "+busy(free)+"; echo three"))
	x.until("the second step runs", func() bool { return strings.Contains(x.out.String(), "two") })
	full := fill(t, disk)
	x.says("the heartbeat fails")
	said := x.err.String()
	if !strings.Contains(said, "full") {
		t.Errorf("the output does not say that the disk is full\n%s", said)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	x.says("a heartbeat has reached the server again")
	if err := os.WriteFile(free, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := x.wait(patience).want(0)
	if r.out != "one\ntwo\nthree\n" {
		t.Errorf("output %q", r.out)
	}
	if log := p.belay("logs", "k").want(0).out; log != r.out {
		t.Errorf("kept: %q", log)
	}
	e := p.only()
	if all := p.history(e.ID); count(all, "started") != 1 || e.State != belay.Succeeded {
		t.Errorf("%s\n%s", e.State, show(all))
	}
	p.clean()
	p.sound()
}

// Rule: a server whose disk is full refuses writes, is not ready, logs the reason, and is ready
// again after its first successful write.
func TestAServerWhoseDiskIsFullIsNotReady(t *testing.T) {
	t.Parallel()
	needsMount(t)
	p := newPlace(t)
	disk := p.mount("disk", "size=8m")
	p.data = filepath.Join(disk, "data")
	server, a := p.serve()
	submission := `{"workflow": "w", "input": "` + strings.Repeat("x", 64<<10) + `"}`
	a.want(http.StatusCreated, "POST", "/v1/executions", submission)
	full := fill(t, disk)
	post := func() int { return a.call("POST", "/v1/executions", submission).status }
	until(t, "writes are refused", func() bool { return post() == http.StatusServiceUnavailable })
	a.want(http.StatusServiceUnavailable, "GET", "/readyz", "")
	if log := server.err.String(); !strings.Contains(log, "full") {
		t.Errorf("the server's log does not say that the disk is full\n%s", log)
	}
	a.want(http.StatusOK, "GET", "/v1/executions", "")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	until(t, "writes pass again", func() bool { return post() == http.StatusCreated })
	a.want(http.StatusOK, "GET", "/readyz", "")
}

// Rule: every command that would use a damaged database refuses in one line, doctor reports the
// damage, and the files stay unchanged so that a user can repair them.
func TestADamagedDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.run("--repo", "none", "--key", "k", "--", "true").want(0)
	db := filepath.Join(p.data, "belay.db")
	for _, name := range []string{"belay.db-wal", "belay.db-shm"} {
		_ = os.Remove(filepath.Join(p.data, name))
	}
	whole := []byte(read(t, db))
	garbage := bytes.Repeat([]byte{0xa5}, len(whole))
	for name, damaged := range map[string][]byte{
		"garbage":   garbage,
		"text":      []byte("this is no database\n"),
		"torn page": append(append(bytes.Clone(whole[:100]), garbage[:8000]...), whole[min(8100, len(whole)):]...),
	} {
		if err := os.WriteFile(db, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"ls"}, {"get", "k"}, {"run", "--repo", "none", "--", "true"},
			{"cancel", "k"}} {
			r := p.belay(args...)
			if r.code == 0 {
				t.Errorf("%s: the command did not notice the damage\n%s", name, r)
			}
			one(t, r, "damaged")
		}
		if r := p.belay("doctor").want(69); !strings.Contains(r.out, "bad") || !strings.Contains(r.out, "damaged") {
			t.Errorf("%s: doctor does not see the damage\n%s", name, r)
		}
		if !bytes.Equal([]byte(read(t, db)), damaged) {
			t.Errorf("%s: the damaged file was changed", name)
		}
	}
}
