// Command record runs a command in a terminal and draws its output as an SVG.
//
//	record -o FILE [-C DIRECTORY] [-prompt TEXT] [-title TEXT] COMMAND [ARGUMENT...]
//
// The picture shows every line at the time at which the command wrote it; a pause longer than maxPause is shown
// shorter. The text is text, which screen readers read and people can select; the colours follow the reader's
// preference for light or dark, and readers who prefer less motion see the end at once. If the command fails, or uses
// the terminal for more than lines and colours, record fails and writes nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// columns and rows are the size of the terminal.
const columns, rows = 120, 60

func main() {
	to := flag.String("o", "", "the `file` to write")
	dir := flag.String("C", ".", "the `directory` in which the command runs")
	prompt := flag.String("prompt", "", "the `text` after the prompt; by default the command line")
	title := flag.String("title", "", "the `title` of the picture")
	flag.Parse()
	if *to == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *prompt == "" {
		*prompt = strings.Join(flag.Args(), " ")
	}
	if err := record(*to, *dir, *prompt, *title, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(to, dir, prompt, title string, args []string) error {
	chunks, err := run(dir, args)
	if err != nil {
		return err
	}
	lines, err := parse(chunks)
	if err != nil {
		return err
	}
	return os.WriteFile(to, []byte(draw(prompt, title, lines)), 0o644) //nolint:gosec // a public picture
}

// chunk is output that arrived at one time, measured from the begin of the command.
type chunk struct {
	at   time.Duration
	text []byte
}

// run runs a command in a new terminal and returns its output.
func run(dir string, args []string) (all []chunk, err error) {
	master, terminal, err := open()
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	defer master.Close()
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, terminal, terminal, terminal
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LANG=C.UTF-8", "NO_COLOR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	began := time.Now()
	err = cmd.Start()
	_ = terminal.Close()
	if err != nil {
		return nil, err
	}
	for {
		buf := make([]byte, 4096)
		n, err := master.Read(buf)
		if n > 0 {
			all = append(all, chunk{time.Since(began), buf[:n]})
		}
		if err != nil { // EIO: no process has the terminal open any more
			return all, cmd.Wait()
		}
	}
}

// open opens a terminal and its other end.
func open() (master, terminal *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	var unlock, number int32
	size := [4]uint16{rows, columns}
	for _, call := range []struct {
		request uintptr
		value   unsafe.Pointer
	}{
		{syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)}, {syscall.TIOCGPTN, unsafe.Pointer(&number)},
		{syscall.TIOCSWINSZ, unsafe.Pointer(&size)},
	} {
		_, _, code := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), call.request, uintptr(call.value))
		if code != 0 {
			return nil, nil, code
		}
	}
	terminal, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	return master, terminal, err
}
