package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Rule: belay top shows a server once as text and as JSON. On a terminal it draws on the alternate screen, and leaves
// the screen when q is pressed, with the settings of the terminal restored.
func TestTopOfAServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	a.call("POST", "/v1/executions", `{"workflow": "w", "queue": "slow"}`)
	p.belay("top", "--once", "--server", a.url).want(0).showing("pending 1", "slow")
	p.belay("top", "-o", "json", "--server", a.url).want(0).showing(`"queue": "slow"`)

	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer master.Close()
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer terminal.Close()
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	must(t, err)
	cmd := p.command("top", "--server", a.url)
	cmd.Stdin, cmd.Stdout = terminal, terminal
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	late := time.AfterFunc(patience, func() { // ends the reads below
		_ = cmd.Process.Kill()
		_ = terminal.Close()
	})
	defer late.Stop()
	var got strings.Builder
	read := func(until string) {
		buf := make([]byte, 4096)
		for !strings.Contains(got.String(), until) {
			n, err := master.Read(buf)
			must(t, err)
			got.Write(buf[:n])
		}
	}
	read("slow")
	_, err = master.WriteString("q")
	must(t, err)
	read("\x1b[?1049l")
	must(t, cmd.Wait())
	after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	must(t, err)
	if *after != *before || !strings.HasPrefix(got.String(), "\x1b[?1049h") {
		t.Errorf("the terminal has other settings, or the wrong screen: %q", got.String())
	}
}

// Rule: belay top shows a running execution with its newest step, its owner and the time for which it runs, counts it
// in its state, its queue and the load of its worker, and no longer shows it once it has ended. A paused queue is a
// shut gate.
func TestTopShowsRunningExecutions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	p.start(p.command("worker", "--name", "wilma", "--queue", "busy")).says("takes work")
	submit := func(queue, script string) string {
		return a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow": "command", "queue": "`+queue+
			`", "input": {"steps": [{"name": "first", "argv": ["true"]}, {"name": "second", "argv": ["sh", "-c", "`+
			script+`"]}]}}`).string("id")
	}
	long := submit("busy", "sleep 600")
	submit("shut", "true")
	a.want(http.StatusOK, "POST", "/v1/gates/queue:shut/pause", `{}`)
	var v struct {
		States []struct {
			State string
			Count int
		}
		Lanes []struct {
			Queue            string
			Pending, Running int
			Oldest           time.Time
		}
		Workers []struct {
			Name    string
			Running int
		}
		Gates   []struct{ ID string }
		Longest []struct {
			Execution, Workflow, Queue, State, Owner, Step string
			Started                                        time.Time `json:"started_at"`
		}
	}
	look := func() {
		v.States, v.Lanes, v.Workers, v.Gates, v.Longest = nil, nil, nil, nil, nil
		must(t, json.Unmarshal([]byte(p.belay("top", "-o", "json", "--server", a.url).want(0).out), &v))
	}
	until(t, "top shows the first step", func() bool {
		look()
		return len(v.Longest) == 1 && v.Longest[0].Step == "run[first]"
	})
	is := v.Longest[0]
	if is.Execution != long || is.Workflow != "command" || is.Queue != "busy" || is.State != "running" ||
		is.Owner != "wilma" || time.Since(is.Started) > patience {
		t.Errorf("the running execution is %+v", is)
	}
	counts := make(map[string]int)
	for _, s := range v.States {
		counts[s.State] = s.Count
	}
	for _, l := range v.Lanes {
		counts[l.Queue+" pending"], counts[l.Queue+" running"] = l.Pending, l.Running
	}
	for _, w := range v.Workers {
		counts[w.Name] += w.Running
	}
	for name, want := range map[string]int{
		"pending": 1, "running": 1, "busy pending": 0, "busy running": 1, "shut pending": 1, "shut running": 0,
		"wilma": 1,
	} {
		if counts[name] != want {
			t.Errorf("top counts %d for %s, want %d: %+v", counts[name], name, want, v)
		}
	}
	if len(v.Gates) != 1 || v.Gates[0].ID != "queue:shut" {
		t.Errorf("the shut gates are %+v", v.Gates)
	}
	p.belay("top", "--once", "--server", a.url).want(0).showing("running 1", long, "command", "run[first]", "wilma",
		"queue:shut", "busy")
	a.want(http.StatusOK, "POST", "/v1/executions/"+long+"/cancel", `{}`)
	a.ends("/v1/executions/"+long, "cancelled")
	if look(); len(v.Longest) != 0 {
		t.Errorf("top still shows %+v", v.Longest)
	}
}
