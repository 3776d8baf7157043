package test

import (
	"fmt"
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
