package test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onTerminal runs a command whose input, output and errors are a terminal, and returns what the terminal gets until
// the command ends, or until it has got a text; then it gets the keys, which end the command.
func onTerminal(t *testing.T, cmd *exec.Cmd, until, keys string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer master.Close()
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	must(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 160}))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that Ctrl-C reaches the command
	must(t, cmd.Start())
	_ = terminal.Close() // the command has it; when it ends, the reads below end
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var got strings.Builder
	buf := make([]byte, 1<<16)
	for {
		n, err := master.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			break
		}
		if until != "" && strings.Contains(got.String(), until) {
			_, err = master.WriteString(keys)
			must(t, err)
			until = ""
		}
	}
	_ = cmd.Wait() // some commands are refused; what they print matters
	return got.String()
}

// own are the escape sequences that Belay itself writes to a terminal: colours, and in the live view of belay top the
// alternate screen, the cursor and erasing.
var own = regexp.MustCompile("\x1b\\[(?:[0-9;]*m|\\?(?:1049|25|7)[hl]|[0-9;]*H|[0-2]?[JK])")

// Rule: on a real terminal the views of Belay write no control characters but their own colours, whatever names,
// errors, logs and outputs contain, and also a line of 10 MB of a log. The live view of belay top may also use the
// alternate screen and move the cursor.
func TestATerminalGetsNoHostileCharacters(t *testing.T) {
	t.Parallel()
	s := hostilePlace(t)
	failed, running := s.runs["execution-failed"].String(), s.runs["execution-running"].String()
	agent, document := s.runs["execution-agent"].String(), s.runs["execution-document"].String()
	for _, args := range [][]string{
		{"get", failed}, {"get", running}, {"get", agent}, {"get", document}, {"get", failed, "-o", "wide"},
		{"ls"}, {"ls", "-o", "wide"}, {"watch", failed}, {"watch", agent}, {"logs", failed}, {"logs", agent},
		{"logs", running}, {"explain", failed}, {"explain", running}, {"explain", document}, {"tasks", document},
		{"dead", "ls"}, {"dead", "groups"}, {"dead", "get", failed}, {"runs", "ls"}, {"workers", "ls"}, {"gates", "ls"},
		{"breakers", "ls"}, {"resources", "ls"}, {"schedules", "ls"}, {"schedules", "get", "hostile"},
		{"webhooks", "ls"},
		{"webhooks", "get", "hostile"}, {"webhooks", "deliveries", "hostile"}, {"notify", "ls"},
		{"notify", "get", "hostile"}, {"workflows", "ls"}, {"workflows", "get", "hostile"}, {"top", "--once"},
	} {
		got := onTerminal(t, s.command(append(args, "--server", s.url, "--color", "always")...), "", "")
		if strings.TrimSpace(got) == "" {
			t.Errorf("belay %v prints nothing", args)
		}
		harmless(t, fmt.Sprint("belay ", args), plain(got))
	}
	live := onTerminal(t, s.command("top", "--server", s.url), "alert(1)", "q")
	if !strings.Contains(live, "alert(1)") {
		t.Errorf("belay top does not show the hostile names: %q", clip(live))
	}
	harmless(t, "belay top", plain(live))
	following := onTerminal(t, s.command("logs", "--follow", running, "--server", s.url), "line\r\n", "\x03")
	harmless(t, "belay logs --follow", strings.ReplaceAll(plain(following), "^C", ""))
}

// plain removes Belay's own escape sequences, and the carriage returns that the terminal adds.
func plain(got string) string { return strings.ReplaceAll(own.ReplaceAllString(got, ""), "\r\n", "\n") }
