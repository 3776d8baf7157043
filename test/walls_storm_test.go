package test

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// storm is a server, or a server and its worker, whose jobs try to escape the sandbox.
type storm struct {
	api
	*place
	mode  mode
	uid   int // the user id of the server
	key   string
	token string
	spec  map[string]any
	env   []string // additional environment variables of the server and the worker
	jobs  string   // the directory of the workspaces
	procs []*started
	heard struct {
		sync.Mutex
		tcp, udp, engine, bus strings.Builder
	}
}

// verdict is the last line that an attacker printed about one attack.
type verdict struct{ Attack, Outcome, Detail string }

// Limits that a job can exceed without harm to the machine.
const (
	mostProcesses = 150
	mostMemory    = 2 << 30 // Go programs, such as the job's supervisor, reserve more than 1 GiB of address space
	mostDisk      = 32 << 20
	mostInodes    = 2000
)

// attackAll lets jobs try all attacks. It returns for each attack whether the attack succeeded, and
// the description of the sandbox in the log.
func attackAll(t *testing.T, m mode, kind string) (open map[string]bool, held string) {
	t.Helper()
	if os.Geteuid() != 0 && !m.user {
		t.Skip("only root can be root")
	}
	x := prepareStorm(t, m, "")
	x.begin(kind)
	victim := x.victim()
	var ids []string
	for _, attacks := range [][]string{
		{
			"database", "secret", "config", "ssh", "environ", "peek", "descriptors", "ptrace", "signal", "victim-files",
			"victim-tmp", "victim-process",
			"abstract", "mount", "outside", "base", "setuid", "userns", "port", "socket", "engine",
			"bus", "tcp", "udp",
		},
		{"disk"}, {"inodes"},
	} {
		ids = append(ids, x.submit(x.token, attacks...))
	}
	last := map[string]verdict{}
	for _, id := range ids {
		if why := x.collect(id, last); why != "" {
			t.Fatal(why)
		}
	}
	// These jobs run one after the other, without other attacks beside them, because they disturb
	// other jobs of the same user.
	for _, why := range []string{
		x.collect(x.submit(x.token, "processes"), last),
		x.collect(x.submit(x.token+"-left", "daemon", "supervisor"), last),
		x.takeMemory(last),
		x.rotate(last),
	} {
		if why != "" {
			t.Fatal(why)
		}
	}
	x.want(http.StatusAccepted, "POST", "/jobs/"+victim+"/cancel", "", x.headers()...)
	open, held = x.judge(last, func(w wall) bool { return w.config == "" }), x.held()
	if !slices.ContainsFunc(m.says, func(says string) bool { return strings.Contains(held, says) }) {
		t.Skipf("this machine does not have the mode; the sandbox of jobs is %s", held)
	}
	x.stop()
	configured := map[string][]string{} // the attacks to try under each configuration
	for _, w := range walls {
		if w.config != "" && w.there(t) {
			configured[w.config] = append(configured[w.config], w.attack)
		}
	}
	for config, attacks := range configured {
		maps.Copy(open, x.attackUnder(m, kind, config, attacks))
	}
	return open, eachUser.ReplaceAllString(held, "a user of its own")
}

// full is locked during an attack that takes much memory, so that only one test at a time takes
// that memory.
var full sync.Mutex

func (x *storm) takeMemory(last map[string]verdict) string {
	full.Lock()
	defer full.Unlock()
	return x.collect(x.submit(x.token, "memory"), last)
}

// rotate lets a job look for a file with credentials, and replaces the file all the time: by a rename,
// and by a file that is removed and made again.
func (x *storm) rotate(last map[string]verdict) string {
	x.api.t.Helper()
	path, other := x.path("credentials"), filepath.Join(x.data, "credentials")
	replace := func() error {
		write := func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(credentials), 0o600), os.Lchown(path, x.uid, x.uid))
		}
		return errors.Join(write(other), os.Rename(other, path), os.Remove(path), write(path))
	}
	stopped := make(chan error)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var err error
		for err == nil {
			select {
			case stopped <- nil:
				return
			case <-tick.C:
				err = replace()
			}
		}
		stopped <- err
	}()
	why := x.collect(x.submit(x.token, "rotated"), last)
	if err := <-stopped; err != nil {
		x.api.t.Errorf("replace the file with credentials: %v", err)
	}
	return why
}

// attackUnder lets one job try attacks under a configuration of their own, and returns for each of
// them whether it succeeded. If the job does not even start, no attack has succeeded.
func (x *storm) attackUnder(m mode, kind, config string, attacks []string) map[string]bool {
	x.api.t.Helper()
	y := prepareStorm(x.api.t, m, "  "+config+"\n")
	y.begin(kind)
	defer y.stop()
	last := map[string]verdict{}
	if why := y.collect(y.submit(y.token, attacks...), last); why != "" {
		y.api.t.Logf("%q under %s: %s", attacks, config, why)
		open := map[string]bool{}
		for _, attack := range attacks {
			open[attack+config] = false
		}
		return open
	}
	return y.judge(last, func(w wall) bool { return w.config == config })
}

// judge returns for each attack whether it succeeded.
func (x *storm) judge(last map[string]verdict, which func(w wall) bool) map[string]bool {
	open := map[string]bool{}
	for _, w := range walls {
		if !which(w) {
			continue
		}
		v, tried := last[w.attack]
		if !tried {
			x.api.t.Errorf("%s was not tried", w.attack)
			continue
		}
		through := v.Outcome == "open"
		if w.judge != "" {
			through = judges[w.judge](x, v)
		}
		open[w.attack+w.config] = through
		x.api.t.Logf("%-16s %-5v %s: %s", w.attack+w.config, through, v.Outcome, v.Detail)
	}
	return open
}

var (
	heldBy   = regexp.MustCompile(`(?:held|isolated)_by="([^"]*)"`)
	eachUser = regexp.MustCompile(`user \d{5,}`)
)

// judges decide whether an attack succeeded, if only the test can see the effect of the attack.
var judges = map[string]func(x *storm, last verdict) bool{
	"ended": ended, "left behind": (*storm).leftBehind, "outside": (*storm).wroteOutside, "tcp": (*storm).reachedTCP,
	"udp":    (*storm).reachedUDP,
	"engine": (*storm).reachedEngine, "bus": (*storm).reachedBus,
}

// ended reports whether the job ended while it tried the attack.
func ended(_ *storm, last verdict) bool { return last.Outcome == "trying" }

// leftBehind reports whether a process of the job still runs after the job's end.
func (x *storm) leftBehind(verdict) bool {
	token := x.token + "-left"
	if poll(5*time.Second, func() bool { return len(napping(token)) == 0 }) {
		return false
	}
	for _, pid := range napping(token) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return true
}

func (x *storm) wroteOutside(verdict) (open bool) {
	for _, path := range x.spec["outside"].([]string) {
		if _, err := os.Lstat(path); err == nil {
			open = true
			x.api.t.Logf("a job wrote %s", path)
			_ = os.Remove(path)
		}
	}
	return open
}

func (x *storm) reachedTCP(verdict) bool {
	return poll(time.Second, func() bool {
		x.heard.Lock()
		defer x.heard.Unlock()
		return strings.Contains(x.heard.tcp.String(), x.token)
	})
}

func (x *storm) reachedEngine(verdict) bool {
	return poll(time.Second, func() bool {
		x.heard.Lock()
		defer x.heard.Unlock()
		return strings.Contains(x.heard.engine.String(), x.token)
	})
}

func (x *storm) reachedBus(verdict) bool {
	return poll(time.Second, func() bool {
		x.heard.Lock()
		defer x.heard.Unlock()
		return strings.Contains(x.heard.bus.String(), x.token)
	})
}

func (x *storm) reachedUDP(verdict) bool {
	return poll(time.Second, func() bool {
		x.heard.Lock()
		defer x.heard.Unlock()
		return strings.Contains(x.heard.udp.String(), x.token)
	})
}
