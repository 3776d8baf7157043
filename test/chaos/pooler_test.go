package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// pooler is a pgbouncer in session mode between one server and the database.
type pooler struct {
	w    *world
	dir  string
	addr string
	proc *process
}

// newPooler starts a pooler, or returns nil if pgbouncer is not installed.
func (w *world) newPooler() *pooler {
	w.t.Helper()
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		if os.Getenv("BELAY_TEST_REQUIRE") != "" {
			w.t.Fatal("no pgbouncer here: scripts/need.sh pgbouncer installs it")
		}
		return nil
	}
	p := &pooler{w: w, dir: w.openPlace("pooler-"), addr: freeAddress(w.t)}
	host, port, err := net.SplitHostPort(w.database.Address())
	if err != nil {
		w.t.Fatal(err)
	}
	_, own, _ := net.SplitHostPort(p.addr)
	users := filepath.Join(p.dir, "users")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = "+
		"%s\nunix_socket_dir =\n"+
		"pool_mode = session\nmax_client_conn = 500\ndefault_pool_size = 60\nserver_login_retry = 1\nauth_type = "+
		"trust\nauth_file = %s\n", host, port, own, users)
	for name, text := range map[string]string{users: "\"postgres\" \"\"\n", filepath.Join(p.dir, "ini"): text} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := p.start(); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (p *pooler) start() (err error) {
	cmd := exec.Command("pgbouncer", filepath.Join(p.dir, "ini"))
	cmd.Dir, cmd.Env = p.dir, p.w.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.w.unprivileged()}
	p.proc, err = p.w.starter.start(cmd, p.w.path("pooler.log"))
	return err
}

// killPooler kills the pooler with all connections through it, and starts it again.
func (w *world) killPooler(ctx context.Context, f fault) {
	if w.pooler == nil {
		return
	}
	defer w.troubled("pooler", time.Now())
	w.pooler.proc.signal(syscall.SIGKILL)
	<-w.pooler.proc.done
	w.fault("pooler killed")
	_ = pause(ctx, f.For)
	if err := w.pooler.start(); err != nil {
		w.t.Errorf("start the pooler: %v", err)
	}
}

// openPlace makes a directory that other users, such as PostgreSQL's, can enter.
func (w *world) openPlace(name string) string {
	w.t.Helper()
	dir, err := os.MkdirTemp("", name)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			w.t.Error(err)
		}
	})
	return dir
}

// unprivileged returns the user for programs that refuse to run as root, or nil if this process
// does not run as root.
func (w *world) unprivileged() *syscall.Credential {
	w.t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		w.t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
