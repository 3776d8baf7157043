package test

import (
	"debug/elf"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// Rule: the image needs only the binary: the binary is static, and belay serve runs as the
// Dockerfile's user in a root directory that contains nothing else.
func TestTheImageNeedsOnlyTheBinary(t *testing.T) {
	t.Parallel()
	file := deployFile(t, "Dockerfile")
	mod := read(t, "../go.mod")
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)[1]
	for _, want := range []string{"FROM golang:" + goVersion, "RUN CGO_ENABLED=0 go build", "FROM scratch AS server",
		"USER 65532:65532", "STOPSIGNAL SIGTERM"} {
		if !strings.Contains(file, want) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}
	f, err := elf.Open(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if needs, err := f.ImportedLibraries(); err != nil || len(needs) > 0 {
		t.Errorf("the binary needs %q, %v", needs, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary needs a dynamic loader")
		}
	}
	if os.Geteuid() != 0 {
		t.Log("only root can give the binary its own root directory")
		return
	}
	servesAlone(t, file)
}

// servesAlone starts the image's server as a container engine would, on a real database.
func servesAlone(t *testing.T, dockerfile string) {
	t.Helper()
	url := pgtest.Shared(t).TCP("postgres")
	database := pgtest.Shared(t).Database(t)
	name := database[strings.Index(database, "///")+3 : strings.IndexByte(database, '?')]
	p := newPlace(t)
	root := p.path("image")
	for _, dir := range []string{"tmp", "var/lib/belay"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "belay"), text, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/belay", "serve", "--log-format", "json")
	cmd.Dir = "/var/lib/belay"
	for _, m := range regexp.MustCompile(`(?m)^ENV (.*)$`).FindAllStringSubmatch(dockerfile, -1) {
		cmd.Env = append(cmd.Env, strings.Fields(m[1])...)
	}
	cmd.Env = append(cmd.Env, "BELAY_LISTEN=127.0.0.1:0", "BELAY_STORE="+strings.Replace(url, "/postgres?",
		"/"+name+"?", 1))
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	x := p.startAs(cmd)
	x.until("the server is ready", func() bool { return ready.MatchString(x.err.String()) })
	base := ready.FindString(x.err.String())
	for _, path := range probes(t) {
		r, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		if _ = r.Body.Close(); r.StatusCode != http.StatusOK {
			t.Errorf("GET %s: %s", path, r.Status)
		}
	}
	x.signal(syscall.SIGTERM)
	x.wait(patience).want(0)
	if left, err := os.ReadDir(filepath.Join(root, "var/lib/belay")); err != nil || len(left) > 0 {
		t.Errorf("a server on a database writes to its own disk: %v, %v", left, err)
	}
}

// startAs starts a command that already has its own process attributes, such as a user and a root
// directory.
func (p *place) startAs(cmd *exec.Cmd) *started {
	p.t.Helper()
	x := &started{t: p.t, cmd: cmd, done: make(chan struct{}), began: time.Now()}
	cmd.Stdout, cmd.Stderr = &x.out, &x.err
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", line(cmd), err)
	}
	go func() {
		x.end = cmd.Wait()
		close(x.done)
	}()
	p.t.Cleanup(func() {
		if !x.ended() {
			_ = cmd.Process.Kill()
			<-x.done
		}
	})
	return x
}
