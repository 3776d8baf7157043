package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// stuck is an execution that does not go on.
type stuck struct {
	name string
	id   string
	// cause is a text of its page that names the cause. follow are the first words of the links to follow, one after
	// the other; the last leads to a form.
	cause  string
	follow []string
	form   map[string]string // what a person writes into the fields of the form
	do     func()            // what a person does in a terminal if no form helps
	ends   string            // the state of the execution afterwards
}

// stuckWorkflows are the workflows of the executions in TestAPersonRepairsStuckExecutions.
func stuckWorkflows(w *worker.Worker) {
	worker.Register(w, "print", func(context.Context, any) (string, error) { return "printed", nil })
	worker.Register(w, "approve", func(ctx context.Context, _ any) (any, error) {
		return workflow.WaitSignal[any](ctx, "approved")
	})
	worker.Register(w, "ship", func(ctx context.Context, _ any) (any, error) {
		return workflow.Child[any](ctx, "approval", "approve", nil)
	})
	worker.Register(w, "hold", func(ctx context.Context, _ any) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	worker.Register(w, "charge", func(_ context.Context, order struct{ Amount int }) (int, error) {
		if order.Amount == 0 {
			return 0, belay.Permanent(errors.New("the order has no amount"))
		}
		return order.Amount, nil
	})
	worker.Register(w, "summarize", func(ctx context.Context, _ any) (string, error) {
		for _, part := range []string{"first", "second", "third"} {
			err := workflow.Do(ctx, part, func(ctx context.Context) error {
				workflow.AddCost(ctx, 10)
				return nil
			})
			if err != nil {
				return "", err
			}
			if err := workflow.Sleep(ctx, "after "+part, time.Millisecond); err != nil {
				return "", err
			}
		}
		return "short", nil
	})
}

// Rule: from the page of a stuck execution alone a person finds the cause, and the button that repairs it.
func TestAPersonRepairsStuckExecutions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	ask := func(args ...string) string {
		return strings.TrimSpace(p.belay(append(args, "--server", a.url)...).want(0).out)
	}
	submit := func(args ...string) string { return ask(append([]string{"submit"}, args...)...) }
	c, err := client.Dial(t.Context(), a.url, client.Logger(quiet))
	must(t, err)
	running := make(chan error, 3)
	start := func(name string, queues ...string) {
		w := worker.New(c, worker.Options{Name: name, Queues: queues, Concurrency: 8, Log: quiet})
		stuckWorkflows(w)
		go func() { running <- w.Run(t.Context()) }()
		until(t, "the worker is there", func() bool { return strings.Contains(ask("workers", "ls"), name) })
	}
	start("all-round", "default", "labels")
	start("mailer", "mail")
	all := []stuck{
		{
			name: "no worker takes the queue", id: submit("print", "--queue", "posters"),
			cause: `no executions from queue "posters"`, do: func() { start("poster", "posters") },
			follow: []string{"Look at the workers"}, ends: "succeeded",
		},
		{
			name: "the queue is paused", cause: "the printer is on fire", follow: []string{"Resume"}, ends: "succeeded",
			id: func() string {
				ask("pause", "--queue", "labels", "--reason", "the printer is on fire")
				return submit("print", "--queue", "labels")
			}(),
		},
		{
			name: "it waits for a person", id: submit("approve"), cause: `signal "approved"`,
			follow: []string{"Send"}, ends: "succeeded",
		},
		{
			name: "its child waits for a person", id: submit("ship"), cause: "It waits for child",
			follow: []string{"Open the child", "Send"}, ends: "succeeded",
		},
		{
			name: "a person paused it", cause: "month-end", follow: []string{"Resume"}, ends: "waiting",
			id: func() string {
				id := submit("approve")
				until(t, "it waits", func() bool { return strings.Contains(ask("get", id), "waiting") })
				ask("pause", id, "--reason", "month-end")
				return id
			}(),
		},
		{
			name: "the circuit breaker of its target is open", cause: reason, ends: "succeeded",
			follow: []string{"Close the breaker"},
			id: func() string {
				ask("breakers", "open", payments, "--reason", reason)
				return submit("charge", "--input", `{"amount": 3}`, "--target", payments)
			}(),
		},
		{
			name: "its limit is full", cause: `limit "plotter" is full`, follow: []string{"Open hold", "Cancel"},
			ends: "succeeded",
			id: func() string {
				first := submit("hold", "--concurrency", "plotter=1")
				until(t, "it runs", func() bool { return strings.Contains(ask("get", first), "running") })
				return submit("print", "--concurrency", "plotter=1")
			}(),
		},
		{
			name: "its input is wrong", id: submit("charge", "--input", `{"amonut": 3}`), cause: "the order has no amount",
			follow: []string{"Run with another input"}, form: map[string]string{"input": `{"amount": 3}`}, ends: "succeeded",
		},
		{
			name: "its budget is spent", id: submit("summarize", "--budget", "15"), cause: "its budget is spent",
			follow: []string{"Change the budget"}, form: map[string]string{"cost": "100"}, ends: "succeeded",
		},
		{
			name: "all workers are cordoned", cause: "its disk is full", follow: []string{"Uncordon worker"},
			ends: "succeeded",
			id: func() string {
				ask("workers", "cordon", "mailer", "--reason", "its disk is full")
				return submit("print", "--queue", "mail")
			}(),
		},
	}
	b := newBrowser(t, a.url)
	for i, s := range all {
		page := a.url + "/executions/" + s.id
		until(t, s.name+": the page names the cause", func() bool {
			b.do("open", chromedp.Navigate(page+"?live=off"), see("section.why"))
			return strings.Contains(b.text(), s.cause)
		})
		b.shot(fmt.Sprintf("stuck-%02d", i+1))
		for _, label := range s.follow {
			b.do(s.name+": follow "+label, chromedp.Click(fmt.Sprintf(
				`(//ul[@class="remedies"]|//div[@class="acts"])//a[starts-with(normalize-space(.), %q)]`, label)),
				see(`h1`))
			if strings.HasPrefix(label, "Open ") {
				b.do("open", chromedp.Navigate(b.location()+"?live=off"), see("section.why"))
			}
		}
		if s.do != nil {
			s.do()
		} else {
			var steps []chromedp.Action[chromedp.Void]
			steps = append(steps, see("form.act"))
			for name, value := range s.form {
				steps = append(steps, chromedp.SetValue(chromedp.CSS("form.act [name="+name+"]"), value))
			}
			if _, reviewed := s.form["input"]; reviewed {
				steps = append(steps, click("form.act button[type=submit]"), see("#change .added"))
			}
			b.do(s.name+": send the form", append(steps, click("form.act button[type=submit]"), see("p.done"))...)
		}
		until(t, s.name+": it is "+s.ends, func() bool {
			b.do("open", chromedp.Navigate(page), see("section.why"))
			return strings.Contains(b.text(), strings.ToLower(s.ends))
		})
	}
}

// location returns the address of the page.
func (b *browser) location() string {
	b.t.Helper()
	at, err := chromedp.Run(b.ctx, chromedp.Location())
	must(b.t, err)
	return at
}
