package embedded_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// openOn opens an engine on a database.
func openOn(t testing.TB, url string) *embedded.Backend {
	t.Helper()
	b, err := embedded.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Programs share a database: the worker of one program runs the execution that another program
// submitted, and a notification informs the submitter of the execution's end long before the slow
// poll.
func TestADatabaseIsSharedByPrograms(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	a, b := openOn(t, url), openOn(t, url)
	w := worker.New(b, worker.Options{Name: "at b"})
	worker.Register(w, "greet", func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for range 3 {
		within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		h, err := workflow.Start[string](within, a, "greet", "world")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Result(within); err != nil || got != "hello world" {
			t.Errorf("the result is %q, %v", got, err)
		}
		cancel()
	}
}

// An error about the address of a database does not contain the password.
func TestErrorsDoNotShowTheAddressOfADatabase(t *testing.T) {
	for _, url := range []string{"postgres://me:hunter2@127.0.0.1:1/x", "postgress://me:hunter2@db/x",
		"postgres://me:hunter2@[::1/x"} {
		_, err := embedded.Open(t.Context(), url)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("opening it: %v", err)
		}
		if _, err := embedded.OpenReader(t.Context(), url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("opening it to read: %v", err)
		}
	}
}
