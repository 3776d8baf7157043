package test

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Rule: an order that waits up to 24 hours for an approval, and gets an approval of the wrong type,
// fails; belay retry makes it ask again, and no finished step is repeated.
func TestAnApprovalOfTheWrongTypeIsRepaired(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.example("approval", "17")
	x.shows("belay signal ")
	id := regexp.MustCompile(`ex_\w+`).FindString(x.out.String())
	data := filepath.Join(p.cwd, "belay-data")
	at := "unix:" + filepath.Join(data, "belay.sock")
	p.belay("signal", id, "approved", "--payload", `"yes"`, "--server", at).want(0)
	x.wait(patience).want(1).saying("the payload of a signal has the wrong type")
	p.belay("retry", id, "--data", data).want(0)
	x = p.example("approval", "17")
	if !poll(patience, func() bool {
		return p.belay("signal", id, "approved", "--payload", `{"by": "ann"}`, "--server", at).code == 0
	}) {
		t.Fatal("the signal is not accepted\n" + x.dump())
	}
	want := "order 17: ship\norder 17: shipped, approved by ann\n"
	if got := x.wait(patience).want(0).out; got != want {
		t.Errorf("the program prints\n%s\nwant\n%s", got, want)
	}
}

// purchase is a workflow with an approval. It accepts every payload as the approval, and fails if the
// payload names nobody.
type purchase struct{ reserved, checked atomic.Int32 }

func (s *purchase) run(ctx context.Context, _ any) (string, error) {
	count := func(n *atomic.Int32) func(context.Context) error {
		return func(context.Context) error { n.Add(1); return nil }
	}
	if err := workflow.Do(ctx, "reserve", count(&s.reserved)); err != nil {
		return "", err
	}
	answer, err := workflow.WaitSignal[any](ctx, "approved", workflow.Timeout(24*time.Hour))
	if err != nil {
		return "", err
	}
	if err := workflow.Do(ctx, "check", count(&s.checked)); err != nil {
		return "", err
	}
	by, ok := answer.(map[string]any)["by"].(string)
	if !ok {
		return "", errors.New("nobody has approved")
	}
	return "approved by " + by, nil
}

// Rule: an execution whose wait has saved a poison answer is repaired with a retry from that wait,
// over HTTP and with the command line. Steps before the wait do not run again, later steps do. A fork
// at a step runs only this step and later ones.
func TestAPoisonAnswerIsDiscarded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	b, err := client.Dial(t.Context(), a.url, client.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	var s purchase
	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "purchase", s.run)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := errors.Join(<-done, b.Close()); err != nil {
			t.Error(err)
		}
	}()
	id := a.want(201, "POST", "/v1/executions", `{"workflow": "purchase", "max_attempts": 1}`).string("id")
	path := "/v1/executions/" + id
	ends := func(path, payload, state string) answer {
		t.Helper()
		a.want(202, "POST", path+"/signal", `{"name": "approved", "payload": `+payload+`}`)
		return a.ends(path, state)
	}
	ran := func(reserved, checked int32) {
		t.Helper()
		if r, c := s.reserved.Load(), s.checked.Load(); r != reserved || c != checked {
			t.Errorf("reserved %d times, checked %d times; want %d and %d", r, c, reserved, checked)
		}
	}
	if got := a.want(409, "POST", path+"/retry", `{"from": "approved"}`); !strings.Contains(got.text, "only a failed") {
		t.Error(got.text)
	}
	ends(path, `{}`, "failed")
	a.want(200, "POST", path+"/retry", ``)
	a.ends(path, "failed") // a retry without from keeps the poison answer
	ran(1, 1)
	got := a.want(422, "POST", path+"/retry", `{"from": "approve\u202ed"}`)
	if want := `it has \"reserve\", \"approved\", \"check\"`; !strings.Contains(got.text, want) {
		t.Errorf("%s\nwant %s", got.text, want)
	}
	a.want(200, "POST", path+"/retry", `{"from": "approved", "reason": "nobody"}`)
	ends(path, `{}`, "failed")
	ran(1, 2)
	on := []string{"--server", a.url}
	p.belay(append(on, "retry", id, "--from", "approve")...).want(65).saying(`it has "reserve", "approved", "check"`)
	p.belay(append(on, "retry", id, "--from", "check", "--input", "1")...).want(64).saying("all work is done again")
	p.belay(append(on, "__complete", "retry", id, "--from", "")...).
		showing("check\tstep\napproved\twait\nreserve\tstep\n")
	p.belay(append(on, "retry", id, "--from", "approved")...).want(0).showing(id + " is ")
	if got := ends(path, `{"by": "ann"}`, "succeeded"); got.string("output") != "approved by ann" {
		t.Error(got.text)
	}
	ran(1, 3)
	p.belay(append(on, "get", id)...).showing(`from "approved" on: nobody`)

	p.belay(append(on, "__complete", "fork", id, "--at", "a")...).showing("approved\twait\n")
	p.belay(append(on, "fork", id, "--at", "ship")...).want(65).saying("no step or wait")
	fork := p.belay(append(on, "fork", id, "--at", "check")...).want(0).out
	forked := regexp.MustCompile(`ex_\w+`).FindString(fork)
	if forked == id {
		t.Fatalf("belay fork prints %s", fork)
	}
	a.ends("/v1/executions/"+forked, "succeeded")
	ran(1, 4)
	forked = a.want(201, "POST", path+"/fork", `{"at": "approved"}`).string("id")
	if got := ends("/v1/executions/"+forked, `{"by": "bert"}`, "succeeded"); got.string("output") != "approved by bert" {
		t.Error(got.text)
	}
	ran(1, 5)
	a.want(422, "POST", path+"/fork", `{"at": "approved", "up_to": 3}`)
}

// ends waits until an execution is in a state.
func (a api) ends(path, state string) (got answer) {
	a.t.Helper()
	if !poll(patience, func() bool {
		got = a.want(200, "GET", path, "")
		return got.string("state") == state
	}) {
		a.t.Fatalf("%s is not %s: %s", path, state, got.text)
	}
	return got
}
