package postgres_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/jackc/pgx/v5"
)

// pooler runs Debian's pgbouncer in front of a server, with settings, and returns the address of a
// database through it.
func pooler(t *testing.T, srv *pgtest.Server, database string, settings ...string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if os.Getenv("BELAY_TEST_REQUIRE") != "" {
			t.Fatal("no pgbouncer here: scripts/need.sh pgbouncer installs it")
		}
		t.Skip("no pgbouncer here: scripts/need.sh pgbouncer installs it")
	}
	dir, err := os.MkdirTemp("", "pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	host, floorAge, err := net.SplitHostPort(srv.Address())
	if err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(dir, "users")
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = "+
		"%s\nunix_socket_dir =\n"+
		"auth_type = trust\nauth_file = %s\n%s\n", host, floorAge, port, users, strings.Join(settings, "\n"))
	for name, text := range map[string]string{"users": "\"postgres\" \"\"\n", "ini": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// The shell ends pgbouncer when this process has ended.
	shell := exec.Command("sh", "-c", `"$1" "$2" >/dev/null 2>&1 </dev/null & pid=$!; read -r stop; kill -s TERM $pid; wait $pid`, "pooler", program, filepath.Join(dir, "ini"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: unprivileged(t)}
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = shell.Wait()
	})
	ready, late := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer ready.Stop()
	for err := errors.New("not yet"); err != nil; {
		select {
		case <-ready.C:
		case <-late:
			t.Fatalf("the pooler does not answer: %v", err)
		}
		var c net.Conn
		if c, err = net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			_ = c.Close()
		}
	}
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%s/%s?sslmode=disable", port, database)
}

// unprivileged is the user for servers that refuse to run as root; nil if this process does not run
// as root.
func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// named returns the name of the database in a URL.
func named(t *testing.T, url string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return config.Database
}

// A store works through a pooler in session mode, with the pooler's defaults and also if the pooler
// ignores the settings that a client sends when it connects. In both cases the store's time limits
// apply: a transaction that waits too long for a locked row fails, and an idle transaction is ended.
func TestAPoolerInSessionMode(t *testing.T) {
	srv := pgtest.Start(t, pgtest.Options{})
	for name, settings := range map[string][]string{
		"defaults": nil,
		"ignored": {
			"ignore_startup_parameters = " +
				"extra_float_digits,lock_timeout,idle_in_transaction_session_timeout,plan_cache_mode,jit,enable_seqscan",
		},
	} {
		t.Run(name, func(t *testing.T) {
			direct := srv.Database(t)
			url := pooler(t, srv, named(t, direct), settings...)
			s := open(t, url, postgres.Options{Patience: 5 * time.Second})
			a, b := server{s, t}, server{open(t, url, postgres.Options{}), t}
			a.ok(&machine.Submit{Submission: belay.Submission{ID: belay.ExecutionID{1}, Workflow: "w"}})
			heard, ready := make(chan store.Hint, 100), make(chan store.Hint, 100)
			go func() { _ = b.Store.Listen(t.Context(), func(h store.Hint) { heard <- h }) }()
			go func() { _ = a.Store.Listen(t.Context(), func(h store.Hint) { ready <- h }) }()
			for _, c := range []chan store.Hint{heard, ready} {
				for h := range c {
					if h.Lost {
						break
					}
				}
			}
			a.ok(&machine.Submit{Submission: belay.Submission{ID: belay.ExecutionID{2}, Workflow: "w"}})
			select {
			case <-heard:
			case <-time.After(20 * time.Second):
				t.Error("a hint does not pass the pooler")
			}
			hold, err := pgx.Connect(t.Context(), direct)
			if err != nil {
				t.Fatal(err)
			}
			defer hold.Close(t.Context())
			if _, err := hold.Exec(t.Context(), "BEGIN; SELECT 1 FROM executions FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			act := &machine.Act{Control: belay.Control{Execution: belay.ExecutionID{1}, Action: belay.ActionCancel}}
			if _, err := a.during(func(*machine.Rows) {}, act); !errors.Is(err, store.ErrBusy) {
				t.Errorf("a command that waits for a locked row got %v", err)
			}
			if _, err := hold.Exec(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			// The database ends the idle transaction during this wait, and the store repeats the
			// transaction.
			_, err = a.during(func(*machine.Rows) {
				until(t, srv, "SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'idle in transaction' AND "+
					"datname = '"+named(t, direct)+"'")
			}, &machine.Submit{Submission: belay.Submission{ID: belay.ExecutionID{3}, Workflow: "w"}})
			if err != nil {
				t.Errorf("a transaction that was idle: %v", err)
			}
		})
	}
}

// A pooler that shares sessions is refused when the store is opened, before anything is written,
// and the error says what to do. A pooler that refuses a setting of the URL is refused in the same
// way.
func TestAPoolerThatSharesSessionsIsRefused(t *testing.T) {
	srv := pgtest.Start(t, pgtest.Options{})
	for mode, want := range map[string]string{"transaction": "pool_mode = session", "statement": "pool"} {
		direct := srv.Database(t)
		_, err := postgres.Open(t.Context(), pooler(t, srv, named(t, direct), "pool_mode = "+mode), postgres.Options{})
		if err == nil || belay.CodeOf(err) != belay.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s mode: %v", mode, err)
		}
		if n, err := srv.Query(named(t, direct),
			"SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); err != nil || n != "0" {
			t.Errorf("%s mode: %s tables were made, %v", mode, n, err)
		}
	}
	url := pooler(t, srv, named(t, srv.Database(t))) + "&statement_timeout=60000"
	_, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err == nil || belay.CodeOf(err) != belay.CodeInvalid || !strings.Contains(err.Error(), "pooler") ||
		!strings.Contains(err.Error(), "statement_timeout") {
		t.Errorf("a setting in the address: %v", err)
	}
}
