//go:build linux

package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The environment variables for the test binary when it runs as the parent of a run.
const (
	parentRun       = "PROCESS_TEST_RUN"
	parentIsolation = "PROCESS_TEST_ISOLATION"
	parentFreezer   = "PROCESS_TEST_FREEZER"
	parentFreezes   = "PROCESS_TEST_FREEZES"
	parentCloses    = "PROCESS_TEST_CLOSES"
)

// parent is the main function of the test binary as a parent: it runs a script as a Command and
// prints the output of the script. If PROCESS_TEST_FREEZES is set, it freezes the script after the
// first line of output.
func parent() {
	if os.Getenv(parentCloses) != "" {
		if err := Undumpable(); err != nil {
			fmt.Println("error:", err)
		}
	}
	lines := make(chan struct{}, 1)
	c := Command{
		ID: os.Getenv(parentRun), Args: []string{"/bin/sh", "-c", os.Args[1]}, Dir: "/",
		Inherit: Basics(), Grace: time.Minute,
		Isolation: Isolation(os.Getenv(parentIsolation)), freezer: os.Getenv(parentFreezer),
		Output: func(_ context.Context, c Chunk) error {
			_, err := os.Stdout.Write(c.Data)
			select {
			case lines <- struct{}{}:
			default:
			}
			return err
		},
	}
	tree, err := Start(context.Background(), c)
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	if os.Getenv(parentFreezes) != "" {
		<-lines
		fmt.Println("frozen:", tree.Freeze(context.Background()))
	}
	_, err = tree.Wait()
	fmt.Println("ended:", err)
	os.Exit(0)
}

// startParent starts the test binary as a parent, and waits until the parent has printed a line
// that contains ready.
func startParent(t *testing.T, kind Isolation, id, script, ready string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", script)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), parentRun + "=" + id, parentIsolation + "=" + string(kind)},
		env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	patience := time.After(20 * time.Second)
	for {
		select {
		case line, open := <-lines:
			if !open {
				t.Fatalf("the parent ended before it printed %q", ready)
			}
			if strings.Contains(line, ready) {
				go func() {
					for range lines { // reads the pipe, so that the parent is never blocked
					}
				}()
				return cmd
			}
		case <-patience:
			t.Fatalf("the parent has not printed %q within 20 s", ready)
		}
	}
}
