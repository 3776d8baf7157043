package test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// registryExample starts a program of examples/registry.
func (p *place) registryExample(name string, env []string, args ...string) *started {
	p.t.Helper()
	path, err := filepath.Abs("../examples/registry/" + name)
	if err != nil {
		p.t.Fatal(err)
	}
	if strings.HasSuffix(name, ".py") {
		args = append([]string{"-B", path}, args...)
		path = "python3"
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = p.cwd
	cmd.Env = append(p.environment(env...), "NO_PROXY=127.0.0.1",
		"PATH="+filepath.Dir(binary(p.t))+":"+os.Getenv("PATH"))
	return p.start(cmd)
}

// Rule: agents of two models share one GPU through belay swap and belay registry exec: all work is
// done, no model is unloaded while an agent works with it, and the models are loaded much less often than
// there are pieces of work.
func TestExampleAgentsShareAGPU(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	gpu := p.registryExample("gpu.py", nil)
	gpu.shows("\n")
	address := strings.TrimSpace(gpu.out.String())
	env := []string{"GPU=" + address}
	agents := []*started{
		p.registryExample("agents.sh", env, "ann", "llama", "4"),
		p.registryExample("agents.sh", env, "bob", "mistral", "4"),
		p.registryExample("agents.sh", env, "cid", "llama", "4"),
	}
	for _, x := range agents {
		x.wait(2 * patience).want(0).showing("has done 4 pieces")
	}
	reply, err := http.Get(address + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	var stats struct {
		Loads, Failures, Collisions int
		Pieces                      map[string]int
	}
	if err == nil {
		err = json.Unmarshal(text, &stats)
	}
	if err != nil || stats.Failures+stats.Collisions > 0 || stats.Pieces["llama"] != 8 ||
		stats.Pieces["mistral"] != 4 || stats.Loads < 2 || stats.Loads > 6 {
		t.Errorf("the GPU counts %s, %v", text, err)
	}
	if s := p.registry(); len(s.Workflows) > 0 || s.Swap != nil {
		t.Errorf("left: %+v", s)
	}
}

// Rule: programs without Belay take part in the registry: they see Belay's swap and are refused,
// Belay sees their entries, and they yield to Belay's swap.
func TestExampleParticipants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		program string
		args    func(p *place, name, recipe string) []string
	}{
		{"participant.py", func(p *place, name, recipe string) []string {
			return []string{"--dir", p.data, "--name", name, "--recipe", recipe, "--pieces", "1000"}
		}},
		{"participant.sh", func(p *place, name, recipe string) []string {
			return []string{p.data, name, recipe, "1000"}
		}},
	} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			x := p.registryExample(c.program, nil, c.args(p, "talk", "llama")...)
			x.shows("piece 1")
			if s := p.registry(); len(s.Workflows) != 1 || s.Workflows[0].Name != "talk" ||
				s.Workflows[0].OwnerPID != x.cmd.Process.Pid {
				t.Fatalf("the registry has %+v", s)
			}
			p.registryExample(c.program, nil, c.args(p, "talk", "llama")...).wait(patience).want(codeAgain)
			p.belay("swap", "--to", "mistral", "--wait", "60s", "--", "true").want(0).saying("asked to yield")
			x.wait(patience).want(0).showing("yields")

			free := p.path("free")
			swap := p.start(p.command("swap", "--to", "mistral", "--", "sh", "-c", "echo ready; "+busy(free)))
			swap.shows("ready")
			p.registryExample(c.program, nil, c.args(p, "talk", "llama")...).wait(patience).want(codeAgain).
				saying("a swap to mistral")
			state := filepath.Join(p.data, "workflows.json")
			marked := read(t, state)
			if err := os.Remove(state); err != nil {
				t.Fatal(err)
			}
			p.registryExample(c.program, nil, c.args(p, "talk", "llama")...).wait(patience).want(codeAgain).
				saying("whose marker was lost")
			if exists(state) {
				t.Errorf("a refused program has written %s", read(t, state))
			}
			if err := os.WriteFile(state, []byte(marked), 0o600); err != nil {
				t.Fatal(err)
			}
			swap.kill()
			until(t, "the command of the killed swap has ended", func() bool { // the marker stays
				lock, err := os.Open(filepath.Join(p.data, ".swap.lock"))
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Close()
				return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
			})
			if c.program == "participant.sh" {
				p.belay("registry", "ls").want(0) // the script leaves orphans to others
			}
			x = p.registryExample(c.program, nil, c.args(p, "talk", "llama")...)
			x.shows("piece 1")
			x.kill()
			if s := p.registry(); len(s.Workflows) != 0 {
				t.Errorf("after a kill: %+v", s)
			}
			if n := strings.Count(p.swapEvents(), "orphan_marker_cleared"); n != 1 {
				t.Errorf("the log has %s", p.swapEvents())
			}
		})
	}
}
