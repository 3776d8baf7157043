package workspace

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
)

// ignorer decides with a running `git check-ignore` whether paths are ignored. Its caller passes a
// directory before the paths below that directory. So git reads only .gitignore files of
// directories that the caller has already checked.
type ignorer struct {
	g *git
	c command

	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	stop context.CancelFunc
	done chan struct{}
}

// match reports whether the .gitignore files ignore a path that is not in the index.
func (i *ignorer) match(ctx context.Context, name string) (bool, error) {
	if i.cmd == nil {
		if err := i.start(ctx); err != nil {
			return false, fmt.Errorf("git check-ignore: %w", err)
		}
	}
	// The leading ./ prevents git from interpreting a colon at the beginning of the name.
	if _, err := io.WriteString(i.in, "./"+name+"\x00"); err != nil {
		return false, fmt.Errorf("git check-ignore: %w", cmp.Or(context.Cause(ctx), err))
	}
	var pattern string
	for field := range 4 { // the file of the rule, its line number, the rule, the path
		s, err := i.out.ReadString(0)
		if err != nil {
			return false, fmt.Errorf("git check-ignore: %w", cmp.Or(context.Cause(ctx), err))
		}
		if field == 2 {
			pattern = s[:len(s)-1]
		}
	}
	return pattern != "" && pattern[0] != '!', nil
}

func (i *ignorer) start(ctx context.Context) error {
	ctx, i.stop = context.WithCancel(ctx)
	c := i.c
	c.args = []string{"check-ignore", "--no-index", "--verbose", "--non-matching", "-z", "--stdin"}
	cmd := i.g.command(ctx, c)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	i.in, i.out, i.done = in, bufio.NewReader(out), make(chan struct{})
	started := make(chan error)
	go func() {
		defer close(i.done)
		runtime.LockOSThread() // the kernel kills git when the thread that started it ends
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			<-ctx.Done()
			_ = cmd.Wait()
		}
	}()
	i.cmd = cmd
	return <-started
}

// close ends git and waits for it.
func (i *ignorer) close() {
	if i.cmd != nil {
		i.stop()
		<-i.done
	}
}
