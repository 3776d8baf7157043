package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
)

// bulked is a server with executions of the workflow "charge", which fail until the test repairs them.
type bulked struct {
	*place
	api
	t      *testing.T
	listen string
	server *started
	good   atomic.Bool
}

// newBulked starts the server and, in this process, the worker.
func newBulked(t *testing.T) *bulked {
	t.Helper()
	t.Parallel()
	s := &bulked{place: newPlace(t), t: t, listen: freeAddress(t)}
	s.server, s.api = s.serve("--listen", s.listen)
	b, err := client.Dial(t.Context(), s.url, client.Lazy(), client.Logger(quiet))
	must(t, err)
	w := worker.New(b, worker.Options{Concurrency: 10, Grace: -1, Log: quiet})
	worker.Register(w, "charge", func(context.Context, any) (string, error) {
		if s.good.Load() {
			return "charged", nil
		}
		return "", belay.Permanent(errors.New("the account is closed"))
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
		must(t, b.Close())
	})
	return s
}

// broken submits n executions and waits until each has a dead letter.
func (s *bulked) broken(n int) (ids []belay.ExecutionID) {
	s.t.Helper()
	for range n {
		ids = append(ids, parse(s.t,
			s.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow":"charge"}`).string("id")))
	}
	until(s.t, "all have failed", func() bool { return s.letters("open") == n })
	return ids
}

// letters counts the dead letters of a resolution.
func (s *bulked) letters(resolution string) int {
	s.t.Helper()
	page := s.want(http.StatusOK, "GET", "/v1/dead-letters?limit=1000&resolution="+resolution, "")
	all, _ := page.at("dead_letters").([]any)
	return len(all)
}

// succeeded is how many executions a bulk has repaired, as its newest state says.
func (s *bulked) succeeded(bulk string) (n int) {
	s.t.Helper()
	events, _ := s.want(http.StatusOK, "GET", bulk+"/history?data=true", "").at("events").([]any)
	for _, e := range events {
		if data, ok := e.(map[string]any)["data"].(map[string]any); ok {
			if count, ok := data["succeeded"].(float64); ok {
				n = int(count)
			}
		}
	}
	return n
}

// Rule: a bulk survives kill -9 of its server at the canary and after it: the next server continues it,
// and each execution is reopened once and counted once.
func TestABulkSurvivesKillsOfItsServer(t *testing.T) {
	s := newBulked(t)
	n := 40
	if *long {
		n = 500
	}
	ids := s.broken(n)
	s.good.Store(true)
	bulk := "/v1/executions/" + s.want(http.StatusOK, "POST", "/v1/bulk",
		`{"action":"requeue","filter":{"workflow":"charge"},"notes":"the bank is back","rate":20}`).string("execution", "id")
	for _, reached := range []int{2, n / 2} {
		until(t, fmt.Sprintf("%d are repaired", reached), func() bool { return s.succeeded(bulk) >= reached })
		s.server.signal(syscall.SIGKILL)
		s.server.wait(patience)
		s.server, _ = s.serve("--listen", s.listen)
	}
	var x answer
	until(t, "the bulk has ended", func() bool {
		x = s.want(http.StatusOK, "GET", bulk, "", "Prefer", "wait=20")
		return x.string("state") == "succeeded"
	})
	for field, want := range map[string]int{"selected": n, "succeeded": n, "failed": 0, "conflicts": 0, "running": 0} {
		if got, _ := x.at("output", field).(float64); int(got) != want {
			t.Errorf("%s is %v, want %d\n%s", field, got, want, x.text)
		}
	}
	for _, id := range ids {
		x := s.want(http.StatusOK, "GET", "/v1/executions/"+id.String(), "")
		if generation, _ := x.at("generation").(float64); generation != 2 || x.string("state") != "succeeded" {
			t.Errorf("%s", x.text)
		}
	}
	s.belay("get", strings.TrimPrefix(bulk, "/v1/executions/")).want(0).showing("progress",
		fmt.Sprintf("done: %d succeeded", n))
}

// Rule: belay bulk shows what it would do, needs a confirmation and a filter, stops at the canary with
// an error that says why, and works with a server and without one.
func TestBelayBulk(t *testing.T) {
	s := newBulked(t)
	s.broken(12)
	s.belay("bulk", "requeue").want(64).saying("--workflow", "--all")
	s.belay("bulk", "requeue", "--workflow", "charge").want(64).saying("--dry-run", "--yes")
	s.belay("bulk", "requeue", "--workflow", "charge", "--dry-run").want(0).showing("requeue 12 dead letters",
		"canary of 1 and 10", "the account is closed")
	s.belay("bulk", "requeue", "--workflow", "charge", "--yes", "--note", "trying").want(73).saying(
		"carries the bulk out", "stopped at the canary: 1 of 1 failed", "the account is closed").
		showing("stopped: 0 succeeded, 1 failed")
	if n := s.letters("retried"); n != 1 {
		t.Errorf("%d were run again", n)
	}
	s.belay("bulk", "discard", "--workflow", "charge", "--yes", "--canary", "none", "--rate", "1000",
		"-o", "json").want(0).showing(`"succeeded": 12`)
	if n := s.letters("open"); n != 0 {
		t.Errorf("%d dead letters are open", n)
	}
	s.server.signal(syscall.SIGTERM)
	s.server.wait(patience).want(0)
	s.belay("submit", "other", "--input", "1").want(0)
	s.belay("bulk", "cancel", "--workflow", "other", "--yes").want(0).showing("done: 1 succeeded")
	s.belay("ls", "--workflow", "other").want(0).showing("cancelled")
}
