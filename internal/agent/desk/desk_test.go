package desk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// longest is the answer of at most 64 KiB that is the longest as JSON.
var longest = strings.Repeat("<", 64<<10)

// worker is a Handler that knows one answer.
type worker struct{ reports atomic.Int64 }

func (w *worker) Ask(ctx context.Context, question string) (string, error) {
	switch question {
	case "known":
		return "yes", nil
	case "long":
		return longest, nil
	}
	<-ctx.Done()
	return "", context.Cause(ctx)
}

func (w *worker) Checkpoint(context.Context) error {
	return errors.New("the changes could not be stored")
}

func (w *worker) Report(string) error { w.reports.Add(1); return nil }

// open opens a desk in a directory whose path is longer than the address of a Unix socket may be.
func open(t *testing.T) (*Desk, *worker) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w := new(worker)
	d, err := Open(dir, os.Geteuid(), w, func(_ context.Context, pid int) bool { return pid == os.Getpid() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, w
}

// Rule: a job asks, stores its changes and reports through its socket, and gets the worker's errors.
func TestRequests(t *testing.T) {
	d, w := open(t)
	if text, err := Ask(t.Context(), d.Path(), "known"); text != "yes" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := Ask(t.Context(), d.Path(), "long"); text != longest || err != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if err := Checkpoint(t.Context(), d.Path()); err == nil || err.Error() != "the changes could not be stored" {
		t.Error(err)
	}
	if err := Report(t.Context(), d.Path(), "half done"); err != nil || w.reports.Load() != 1 {
		t.Error(err)
	}
	if err := Report(t.Context(), d.Path(), strings.Repeat("x", maxRequest)); err == nil ||
		!strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
	info, err := os.Lstat(d.Path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// Rule: a question without an answer blocks until the desk is closed, and then ends with an error.
func TestAQuestionEndsWithTheDesk(t *testing.T) {
	d, _ := open(t)
	ended := make(chan error, 1)
	go func() {
		_, err := Ask(t.Context(), d.Path(), "unknown")
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the question got an answer, although no person gave one")
	}
	if _, err := Ask(t.Context(), d.Path(), "known"); err == nil {
		t.Error("a closed desk answers")
	}
}

// Rule: a hostile job harms only itself: no request is larger than its limit, no connection blocks others, and a
// connection that sends nothing occupies one of few places for a short time.
func TestHostileRequests(t *testing.T) {
	d, w := open(t)
	send := func(text string) string {
		var conn net.Conn
		if err := through(d.Path(), func(short string) (err error) {
			conn, err = net.Dial("unix", short)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, text) // the desk may close the connection before the end of the text
		raw, _ := io.ReadAll(conn)
		return string(raw)
	}
	for _, text := range []string{
		"\n", "[]\n", "{\"do\":1}\n", "\x00\xff\n", strings.Repeat("[", 10_000) + "\n", `{"do":"` + strings.Repeat("x",
			maxRequest) + "\"}\n",
	} {
		if got := send(text); got != "" && !strings.Contains(got, "one line of JSON") {
			t.Errorf("%.40q: %q", text, got)
		}
	}
	if got := send(`{"do":"settle"}` + "\n"); !strings.Contains(got, `there is no action \"settle\"`) {
		t.Errorf("%q", got)
	}
	var idle []net.Conn
	for range 3 * maxCallers {
		if err := through(d.Path(), func(short string) error {
			conn, err := net.Dial("unix", short)
			idle = append(idle, conn)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Report(t.Context(), d.Path(), "x"); err == nil {
		t.Error("there is a place for more than the limit")
	}
	for _, conn := range idle {
		_ = conn.Close()
	}
	for deadline := time.Now().Add(5 * time.Second); Report(t.Context(), d.Path(), "x") != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the places of closed connections are not free")
		}
	}
	if w.reports.Load() != 1 {
		t.Errorf("%d reports", w.reports.Load())
	}
}

// Rule: a process of another job, which may run as the same user, gets no answer and changes nothing.
func TestRequestsOfOtherJobs(t *testing.T) {
	dir, w := t.TempDir(), new(worker)
	d, err := Open(dir, os.Geteuid(), w, func(_ context.Context, pid int) bool { return pid != os.Getpid() })
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := Report(t.Context(), d.Path(), "of another job"); err == nil || w.reports.Load() != 0 {
		t.Errorf("%v, and %d reports", err, w.reports.Load())
	}
	if text, err := Ask(t.Context(), d.Path(), "known"); err == nil {
		t.Errorf("another job got the answer %q", text)
	}
}

// Rule: an MCP client finds the three tools, and a tool's error reaches the agent as a result.
func TestTools(t *testing.T) {
	d, _ := open(t)
	to, from := mcp.NewInMemoryTransports()
	server, err := tools(d.Path(), "test").Connect(t.Context(), from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), to, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := c.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, x := range []struct {
		name, says string
		input      map[string]any
		failed     bool
	}{
		{"ask_human", "yes", map[string]any{"question": "known"}, false},
		{"report", "People see it.", map[string]any{"text": "half done"}, false},
		{"checkpoint", "could not be stored", map[string]any{}, true},
	} {
		got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: x.name, Arguments: x.input})
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		for _, part := range got.Content {
			if text, ok := part.(*mcp.TextContent); ok {
				said.WriteString(text.Text)
			}
		}
		if got.IsError != x.failed || !strings.Contains(said.String(), x.says) {
			t.Errorf("%s: %t, %s", x.name, got.IsError, said.String())
		}
	}
}
