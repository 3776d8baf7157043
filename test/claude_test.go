package test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// claude is the installed command line of Claude Code, for all tests of this process.
var claude struct {
	once sync.Once
	dir  string
	err  error
}

// claudePath returns a directory with the program claude, which every user may run. It installs the
// packages of the lock file in claude-npm once for all tests on this machine.
func claudePath(t *testing.T) string {
	t.Helper()
	claude.once.Do(func() { claude.dir, claude.err = installClaude() })
	if claude.err != nil {
		t.Fatalf("install Claude Code: %v (it needs npm: scripts/need.sh node:nodejs npm)", claude.err)
	}
	return claude.dir
}

func installClaude() (dir string, err error) {
	base := "/var/cache"
	if os.Geteuid() != 0 {
		if base, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	lock, err := os.ReadFile("claude-npm/package-lock.json")
	if err != nil {
		return "", err
	}
	base = filepath.Join(base, "belay-test")
	dir = filepath.Join(base, fmt.Sprintf("claude-%.8x", sha256.Sum256(lock)))
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	one, err := os.OpenFile(filepath.Join(base, "claude.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer one.Close()
	if err := unix.Flock(int(one.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if exists(filepath.Join(dir, "claude")) {
		return dir, nil
	}
	fresh, err := os.MkdirTemp(base, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	for _, name := range []string{"package.json", "package-lock.json"} {
		raw, err := os.ReadFile(filepath.Join("claude-npm", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(fresh, name), raw, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	npm.Dir = fresh
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, clip(string(out)))
	}
	// The package for this machine's platform contains the program. The install script of the main
	// package would make a link to it, but this npm ci runs no scripts.
	found, err := filepath.Glob(filepath.Join(fresh, "node_modules/@anthropic-ai/claude-code-*/claude"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no program was installed: %w", err)
	}
	for _, path := range found {
		if exec.Command(path, "--version").Run() != nil {
			continue
		}
		if err := os.Chmod(path, 0o755); err != nil {
			return "", err
		}
		if err := os.Rename(path, filepath.Join(fresh, "claude")); err != nil {
			return "", err
		}
		if err := os.RemoveAll(filepath.Join(fresh, "node_modules")); err != nil {
			return "", err
		}
		if err := os.Chmod(fresh, 0o755); err != nil {
			return "", err
		}
		return dir, os.Rename(fresh, dir)
	}
	return "", fmt.Errorf("none of %q runs here", found)
}

// otherUser is a user other than root.
const otherUser = 65534

// users runs a test twice: as root, where each job has its own user, and as another user.
func users(t *testing.T, test func(t *testing.T, p *place)) {
	t.Run("own users", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give jobs users of their own")
		}
		t.Parallel()
		test(t, newPlace(t))
	})
	t.Run("another user", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		if os.Geteuid() == 0 {
			p.as = otherUser
		}
		test(t, p)
	})
}

// serveClaude starts a server whose agent is Claude Code with the given model.
func (p *place) serveClaude(m *model, args ...string) agents {
	p.t.Helper()
	repo := p.path("repo")
	if !exists(repo) {
		repo = p.repository()
	}
	env := append([]string{"BELAY_AGENT_COMMAND=", "PATH=" + claudePath(p.t) + ":" + os.Getenv("PATH")}, m.env()...)
	return p.assisted(env, append([]string{"--agent-preset", "claude", "--agent-env", m.names(), "--agent-repo", repo},
		args...)...)
}

// workspaceOf returns the directory in which the agent works. The test reads it from the agent's
// request to the model.
func workspaceOf(d dialogue) string { return d.dir }

// Rule: with --agent-preset claude, the real Claude Code edits, runs commands and commits inside
// its sandbox, and never asks for a permission. Without a sandbox the agent may only edit files,
// the server's log says so, and a job that needs more fails.
func TestClaudeWorksInsideItsSandbox(t *testing.T) {
	t.Parallel()
	users(t, func(t *testing.T, p *place) {
		m := newModel(t, func(d dialogue) move {
			switch len(d.calls) {
			case 0:
				return move{"I run a command.", "Bash", map[string]any{
					"command": "pwd; echo shelled >> notes.txt; git commit -qam shelled; sh -c 'echo $HOME'",
				}}
			case 1:
				return move{
					"", "Write", map[string]any{"file_path": workspaceOf(d) + "/new.txt", "content": "written\n"},
				}
			}
			return move{text: "All is done."}
		})
		a := p.serveClaude(m)
		id := a.ask("work")
		got := a.ended(id)
		t.Logf("%s, sandbox: %s", got.string("status"), got.string("walls"))
		if strings.Contains(a.server.err.String(), "may edit files and nothing else") {
			if os.Geteuid() == 0 && p.as == 0 {
				t.Error("as root, jobs have no sandbox")
			}
			if got.string("status") != "failed" || fmt.Sprint(got.at("denied")) != "[Bash]" ||
				!strings.Contains(got.string("error"), "not permitted to use Bash") {
				t.Errorf("without walls: %s", got.text)
			}
		} else {
			if got.string("status") != "completed" || got.string("result") != "All is done." ||
				got.at("denied") != nil {
				t.Fatalf("%s\n%s", got.text, a.server.dump())
			}
			if commits, _ := got.at("changes", "commits").(float64); commits != 1 {
				t.Errorf("the job's changes are %v", got.at("changes"))
			}
			if patch := p.artifact(parse(t, id), got.string("changes", "patch")); !strings.Contains(patch, "+written") {
				t.Errorf("the job's patch is %q", patch)
			}
		}
		if got.string("walls") == "" || len(got.string("session")) != 36 || got.at("started_at") == nil {
			t.Errorf("%s", got.text)
		}
		m.checkOnlyModelAsked()
		a.stop()
	})
}

// Rule: if Claude Code may not use a tool that it needs, the job fails, even if the agent's answer
// says otherwise, and the job's error names the tool.
func TestClaudeIsDeniedATool(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m := newModel(t, func(d dialogue) move {
		if len(d.calls) == 0 {
			return move{"", "Bash", map[string]any{"command": "git commit --allow-empty -m x"}}
		}
		return move{text: "All is done."}
	})
	a := p.serveClaude(m, "--agent-permissions", "edits")
	got := a.wantEnd(a.ask("work"), "failed", 0.0)
	if fmt.Sprint(got.at("denied")) != "[Bash]" ||
		got.string("error") != "the agent was not permitted to use Bash; see agent.permissions" {
		t.Errorf("%s", got.text)
	}
	a.server.says("the agent may edit files and nothing else (agent.permissions)")
	a.stop()
}

// Rule: after a kill of Claude Code together with its server, Claude Code continues its
// conversation: the model gets everything that was said and done, the prompt is not repeated, and
// no step is done twice.
func TestClaudeContinuesItsConversation(t *testing.T) {
	t.Parallel()
	users(t, func(t *testing.T, p *place) {
		m := newModel(t, func(d dialogue) move {
			switch len(d.calls) {
			case 0:
				return move{"First a commit.", "Bash", map[string]any{
					"command": "echo one >> log.txt && git add log.txt && git commit -qm one",
				}}
			case 1:
				return move{"", "Write", map[string]any{"file_path": workspaceOf(d) + "/two.txt", "content": "two\n"}}
			case 2:
				return move{"Now I wait.", "Bash", map[string]any{
					"command": "echo three >> log.txt; touch $TMPDIR/waits; exec sleep 600",
				}}
			case 3:
				return move{
					"I look what there is.", "Bash", map[string]any{"command": "cat log.txt; git log --format=%s; pwd"},
				}
			}
			return move{text: "All is done."}
		})
		a := p.serveClaude(m, "--agent-permissions", "all")
		id := a.ask("do the three things")
		a.holds("waits")
		// Claude Code writes the conversation to its HOME a moment after it has started the
		// command.
		until(t, "the conversation is stored", func() bool {
			found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(a.held("waits"))),
				"home/.claude/projects/*/*.jsonl"))
			if err != nil || len(found) != 1 {
				return false
			}
			return strings.Contains(read(t, found[0]), "sleep 600")
		})
		before := a.job(id)
		if before.string("phase") != "working" || before.string("session") == "" {
			t.Errorf("while it works: %s", before.text)
		}
		a.server.signal(syscall.SIGKILL)
		a.server.wait(patience)
		seen := len(m.talks())
		a = p.serveClaude(m, "--agent-permissions", "all")
		got := a.wantEnd(id, "completed", 0.0)
		if got.string("result") != "All is done." || got.string("session") != before.string("session") ||
			got.at("resumed") != true {
			t.Errorf("%s", got.text)
		}
		talks := m.talks()
		if len(talks) != seen+2 {
			t.Fatalf("the model was asked %d times, and %d times after the kill", seen, len(talks)-seen)
		}
		first, last := talks[seen], talks[len(talks)-1]
		if len(first.calls) != 3 || !strings.Contains(first.calls[2].result, "interrupted") {
			t.Errorf("after the kill the model saw %+v", first.calls)
		}
		if len(first.prompts) != 2 || first.prompts[0] != "do the three things" ||
			!strings.Contains(first.prompts[1], "You were interrupted") {
			t.Errorf("after the kill the model got the prompts %q", first.prompts)
		}
		if looked := last.calls[3].result; !strings.Contains(looked, `one\nthree\none\nfirst\n`) ||
			strings.Count(looked, "one") != 2 || !strings.Contains(looked, workspaceOf(first)) {
			t.Errorf("the agent found %s", looked)
		}
		if commits, _ := got.at("changes", "commits").(float64); commits != 1 {
			t.Errorf("the job's changes are %v", got.at("changes"))
		}
		patch := p.artifact(parse(t, id), got.string("changes", "patch"))
		if strings.Count(patch, "+two") != 1 || strings.Count(patch, "+three") != 1 {
			t.Errorf("the job's patch is %q", patch)
		}
		m.checkOnlyModelAsked()
		a.stop()
	})
}
