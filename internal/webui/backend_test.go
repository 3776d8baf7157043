package webui_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/belaytest"
	"github.com/belaydev/belay/internal/webui"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// The test uses a real engine: an execution loses its owner, and another worker continues it. The
// page of the execution then shows the lost run and the new owner, and after the end the output.
func TestPagesOfARealExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		kit := belaytest.Open(func(w *worker.Worker) {
			worker.Register(w, "review", func(ctx context.Context, change int) (string, error) {
				for _, name := range []string{"fetch", "test"} {
					if _, err := workflow.Step(ctx, name, func(context.Context) (int, error) {
						return change, nil
					}); err != nil {
						return "", err
					}
				}
				select {
				case <-hold:
				case <-ctx.Done():
					return "", ctx.Err()
				}
				return "looks good", nil
			})
		})
		defer kit.Close()
		pages := webui.New(kit.Backend, webui.Options{})
		show := func(address string) string {
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d\n%s", address, w.Code, w.Body)
			}
			return w.Body.String()
		}
		h, err := workflow.Start[string](t.Context(), kit.Backend, "review", 17)
		if err != nil {
			t.Fatal(err)
		}
		address := "/executions/" + h.ID().String()
		kit.Advance(time.Second)
		kit.Crash()
		kit.Restart()
		kit.Advance(time.Second)
		page := show(address)
		for _, want := range []string{"belaytest 2", ">lost<", "step fetch", "Its lease ends in", `http-equiv="refresh"`,
			"fetch", "17"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page of the running execution lacks %q:\n%s", want, page)
			}
		}
		if fleet := show("/workers"); !strings.Contains(fleet, "belaytest 2") || !strings.Contains(fleet, address) {
			t.Errorf("the page of the workers lacks the owner and its run:\n%s", fleet)
		}
		for _, address := range []string{"/overview", "/dead", "/queues", "/queues?gate=queue:default", "/workflows",
			"/schedules", "/webhooks", "/notifications"} {
			show(address)
		}
		close(hold)
		if _, err := h.Result(t.Context()); err != nil {
			t.Fatal(err)
		}
		page = show(address)
		for _, want := range []string{"It has succeeded", "looks good"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page of the ended execution lacks %q:\n%s", want, page)
			}
		}
		if strings.Contains(page, `http-equiv="refresh"`) {
			t.Error("the page of the ended execution reloads itself")
		}
		if list := show("/executions"); !strings.Contains(list, address) || !strings.Contains(list, ">succeeded<") {
			t.Errorf("the list lacks the execution:\n%s", list)
		}
	})
}

// A wait for which a real execution was suspended is one bar after its end.
func TestAWaitOverTwoRunsIsOneBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := belaytest.Open(func(w *worker.Worker) {
			worker.Register(w, "ask", func(ctx context.Context, _ int) (string, error) {
				return workflow.WaitSignal[string](ctx, "approved")
			})
		})
		defer kit.Close()
		h, err := workflow.Start[string](t.Context(), kit.Backend, "ask", 1)
		if err != nil {
			t.Fatal(err)
		}
		kit.Advance(time.Minute)
		err = kit.Backend.Signal(t.Context(), belay.SignalRequest{
			Execution: h.ID(), Name: "approved", Payload: []byte(`"yes"`),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Result(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		webui.New(kit.Backend, webui.Options{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet,
			"/executions/"+h.ID().String(), nil))
		page := w.Body.String()
		if runs, bars := strings.Count(page, "of-run"), strings.Count(page, "of-step"); runs != 2 || bars != 1 {
			t.Errorf("%d runs and %d waits are drawn, want 2 and 1:\n%s", runs, bars, page)
		}
		if !strings.Contains(page, "1m0s") {
			t.Errorf("the wait does not take a minute:\n%s", page)
		}
	})
}
