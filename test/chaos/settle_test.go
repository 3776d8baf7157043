package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// settling is the longest time after the last fault for which executions may stay open. The longest
// script with all its retries takes far less time. The servers also complete the remaining work in
// far less time, even at half of the measured throughput.
const settling = 2 * time.Minute

// watchOver records from time to time all executions that have not ended.
func (w *world) watchOver(ctx context.Context) {
	r := dice(w.seed, "overseer")
	for pause(ctx, 2*time.Second) == nil {
		s := w.servers[r.IntN(len(w.servers))]
		l := look{At: time.Now()}
		var err error
		if l.Open, err = w.open(ctx, s); err != nil {
			continue
		}
		if l.Sessions, err = s.hasty.Workers(ctx); err == nil {
			w.looked(l)
		}
	}
}

// open lists the executions that have not ended, without their payloads.
func (w *world) open(ctx context.Context, s *server) ([]belay.Execution, error) {
	var all []belay.Execution
	for cursor := ""; ; {
		page, err := s.hasty.Executions(ctx, belay.Filter{
			States: unfinished, Children: true, Limit: 1000, Cursor: cursor,
		})
		if err != nil {
			return nil, err
		}
		for i := range page.Executions {
			x := page.Executions[i]
			x.Input, x.Output, x.Policy = nil, nil, nil
			all = append(all, x)
		}
		if cursor = page.Next; cursor == "" {
			return all, nil
		}
	}
}

// settle waits until all executions have ended. While it waits, it resumes paused executions, raises
// spent budgets, and sends the signal for which an execution waits if no client has sent it. When the time limit
// settling is over, it returns descriptions of the executions that are still open.
func (w *world) settle(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	s := w.servers[0]
	for pause(ctx, 200*time.Millisecond) == nil {
		all, err := w.open(ctx, s)
		if err != nil {
			continue
		}
		if len(all) == 0 {
			return nil
		}
		w.help(ctx, s, all)
	}
	all, err := w.open(context.WithoutCancel(ctx), s)
	if err != nil {
		return []string{"list the open executions: " + err.Error()}
	}
	var out []string
	for i := range all {
		why, err := s.client.Explain(context.WithoutCancel(ctx), all[i].ID)
		out = append(out, fmt.Sprintf("%s is open %s after the last fault: %s %q %v", all[i].ID, settling, why.Summary,
			why.Facts, err))
	}
	return out
}

// help resumes paused executions, raises spent budgets, and sends a signal to each execution that
// waits for a signal that was not sent. An execution whose signal was sent must continue without help.
func (w *world) help(ctx context.Context, s *server, all []belay.Execution) {
	var helping sync.WaitGroup
	turn := make(chan struct{}, 16)
	for i := range all {
		turn <- struct{}{}
		helping.Go(func() {
			w.helpOne(ctx, &recorder{s.client, "helper", w.history}, &all[i])
			<-turn
		})
	}
	helping.Wait()
}

func (w *world) helpOne(ctx context.Context, b *recorder, x *belay.Execution) {
	if x.Budget != nil && x.CostTokens >= x.Budget.Cost {
		_, _ = b.Control(ctx, raised(x.ID, "helper"))
		return
	}
	if x.State == belay.Paused && x.Reason.Code == "budget" {
		return // the raise of the budget resumes it
	}
	if x.State == belay.Paused {
		op := newOp()
		_, _ = b.Control(ctx, belay.Control{Execution: x.ID, Action: belay.ActionResume, Actor: "helper",
			Reason: "resume by helper: " + op.String(), Op: op})
		return
	}
	if x.State != belay.Waiting || x.Reason == nil || x.Reason.Code != "signal" || x.OpenChildren > 0 {
		return
	}
	is := func(s belay.Signal) bool { return s.Name == signalName && s.Child.IsZero() }
	there, err := b.Signals(ctx, belay.SignalQuery{Execution: x.ID})
	if err != nil || slices.ContainsFunc(there, is) {
		return
	}
	op := newOp()
	_ = b.Signal(ctx, belay.SignalRequest{
		Execution: x.ID, Name: signalName, Payload: fmt.Appendf(nil, `"sig of helper %s"`, op), Op: op,
	})
}
