package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
)

func ordered(s visibility) visibility {
	s.unique()
	return s
}

// Rule: jobs of the server's user cannot see the data directory, files with secrets, and the home
// directory except for the programs in it that jobs need. From jobs with users of their own, only
// the data directory and files with secrets are hidden.
func TestSecretsAndTheHomeDirectoryAreHiddenFromJobs(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(root, "home")
	at := func(name string) string { return filepath.Join(root, name) }
	for _, file := range []string{
		"data/belay.db", "etc/belay.yaml", "etc/tls.key", "etc/credentials", "etc/token", "etc/worker.key",
		"etc/task-secret", "srv/secret/x", "opt/tool/x",
		"home/.local/bin/plain", "home/.local/share/agent/v1/agent.js", "home/.pyenv/shims/python",
		"home/venv/bin/python", "home/venv/pyvenv.cfg", "home/work/bin/x",
		"home/go/bin/x", "home/.cargo/bin/x", "home/.cargo/credentials.toml", "home/script.py",
		"home/agents/one/main.py", "usr/bin/x",
	} {
		if err := os.MkdirAll(filepath.Dir(at(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(file), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at("home/.local/share/agent/v1/agent.js"), at("home/.local/bin/agent")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("TOKEN_FILE", at("etc/token"))
	t.Setenv("SSH_AUTH_SOCK", at("none"))
	t.Setenv("PATH", strings.Join([]string{
		at("home/.local/bin"), at("home/.pyenv/shims"), at("home/venv/bin"), at("home/work/bin"), at("home/go/bin"),
		at("home/.cargo/bin"), at("usr/bin"), "relative", home,
	}, ":"))
	cfg := config.Default()
	cfg.File, cfg.TLSKey = at("etc/belay.yaml"), at("etc/tls.key")
	cfg.Agent.PushCredentials = at("etc/later") // does not exist yet
	cfg.Agent.GitCredentials, cfg.Agent.Env = at("etc/credentials"), []string{"TOKEN", "OTHER"}
	cfg.Secrets = []string{"A from file:" + at("etc/task-secret") + " for http"}
	cfg.Agent.Hidden, cfg.Agent.Readable = []string{at("srv/secret")}, []string{at("opt/tool")}
	command := []string{"agent", "--run", at("home/script.py"), at("home/agents/one/main.py"), "{{prompt}}"}

	files := []string{at("data"), at("etc/belay.yaml"), at("etc/credentials"), at("etc/task-secret"),
		at("etc/tls.key"), at("etc/token"),
		at("etc/worker.key"), at("srv/secret")}
	own := visibilityOf(cfg, at("data"), command, true, at("etc/worker.key"))
	secrets := append(slices.Clone(files[1:]), at("etc/later"))
	wantOwn := ordered(visibility{append(slices.Clone(engineSockets), files...), secrets, []string{at("opt/tool")}})
	if diff := cmp.Diff(wantOwn, own, cmp.AllowUnexported(visibility{})); diff != "" {
		t.Errorf("with users of their own: %s", diff)
	}
	s := visibilityOf(cfg, at("data"), command, false, at("etc/worker.key"))
	for _, want := range append(files, home, at("home/.cargo/credentials.toml")) {
		if !slices.Contains(s.hidden, want) {
			t.Errorf("%s is not hidden", want)
		}
	}
	for _, want := range append(secrets, at("home/.cargo/credentials.toml"), at("home/.npmrc")) {
		if !slices.Contains(s.secrets, want) {
			t.Errorf("%s is no secret", want)
		}
	}
	var below []string
	for _, p := range s.readable {
		if strings.HasPrefix(p, root) {
			below = append(below, strings.TrimPrefix(p, root+"/"))
		}
	}
	want := []string{
		"home/.cargo", "home/.cargo/bin", "home/.local/bin", "home/.local/share/agent/v1", "home/.pyenv",
		"home/.pyenv/shims", "home/agents/one", "home/go/bin",
		"home/script.py", "home/venv", "home/venv/bin", "home/work/bin", "opt/tool",
	}
	if diff := cmp.Diff(want, below); diff != "" {
		t.Errorf("what they see: %s", diff)
	}
	for _, p := range slices.Concat(s.hidden, s.secrets, s.readable) {
		if !filepath.IsAbs(p) || p != filepath.Clean(p) || p == "/" {
			t.Errorf("%q is no path for a wall", p)
		}
	}
}

// Rule: if agent.seal is off, a job sees its workspace at its real path, and the other entries of
// the directories on this path are hidden.
func TestWithoutASealOnlyThePathToTheWorkspaceIsVisible(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"data/belay.db", "data/belay.sock", "data/workspaces/jobs/one/x",
		"data/workspaces/base/x", "other/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/usr", filepath.Join(root, "data/link")); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Agent.Seal, cfg.Agent.Hidden = false, []string{filepath.Join(root, "other")}
	got := visibilityOf(cfg, filepath.Join(root, "data"), nil, true)
	want := ordered(visibility{
		hidden: append(slices.Clone(engineSockets), root+"/data/belay.db", root+"/data/belay.sock",
			root+"/data/workspaces/base", root+"/other"),
		secrets: []string{root + "/other"},
	})
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(visibility{})); diff != "" {
		t.Error(diff)
	}
}

// Rule: no job sees the socket of a container engine, whether the job has a user of its own or not,
// and whether the socket is at its usual path or at the path in DOCKER_HOST.
func TestContainerEnginesAreHiddenFromJobs(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///srv/engine/docker.sock")
	t.Setenv("CONTAINER_HOST", "ssh://root@elsewhere/run/podman.sock")
	for _, own := range []bool{true, false} {
		got := ordered(hiddenFrom(config.Default(), t.TempDir(), nil, own)).hidden
		for _, want := range []string{"/run/docker.sock", "/run/containerd", "/run/podman", "/run/crio",
			"/srv/engine/docker.sock"} {
			if !slices.Contains(got, want) {
				t.Errorf("own users %v: %s is not hidden: %q", own, want, got)
			}
		}
		if slices.ContainsFunc(got, func(p string) bool { return !filepath.IsAbs(p) }) {
			t.Errorf("hidden: %q", got)
		}
	}
}

// Rule: a job of the server's user sees no service that would accept the job as if it were the
// server: the service manager, its bus, and the server's database.
func TestServicesThatTrustTheUserAreHiddenFromJobs(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PGHOST", "localhost")
	for store, want := range map[string][]string{
		"sqlite:x": {"/run"}, "postgres:///belay?host=" + dir: {"/run", dir},
		"postgres://db.example.org/belay": {"/run"},
	} {
		cfg := config.Default()
		cfg.Store = store
		got := ordered(hiddenFrom(cfg, t.TempDir(), nil, false))
		for _, path := range want {
			if !slices.Contains(got.hidden, path) {
				t.Errorf("%s: %s is not hidden: %q", store, path, got.hidden)
			}
		}
		if own := hiddenFrom(cfg, t.TempDir(), nil, true); slices.Contains(own.hidden, "/run") {
			t.Errorf("%s: /run is hidden from jobs with users of their own", store)
		}
	}
}

// Rule: jobs insist on the walls of the sandbox that the configuration demands, and on no other
// wall: they do not run on a machine that cannot provide a demanded wall.
func TestJobsInsistOnConfiguredWalls(t *testing.T) {
	for _, c := range []struct {
		set    func(*config.Agent)
		insist []process.Wall
		fails  bool
	}{
		{func(*config.Agent) {}, nil, false},
		{func(a *config.Agent) { a.Hidden = []string{"/x"} }, []process.Wall{process.WallHidden}, false},
		{func(a *config.Agent) { a.Egress = []string{"none"} }, []process.Wall{process.WallNetwork}, false},
	} {
		cfg := config.Default()
		c.set(&cfg.Agent)
		w, err := wallsOf(cfg, visibility{})
		if (err != nil) != c.fails || !slices.Equal(w.Insist, c.insist) {
			t.Errorf("%+v: %+v, %v", cfg.Agent, w, err)
		}
	}
}
