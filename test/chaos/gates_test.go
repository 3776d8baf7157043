package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// The limit and the rate that all servers share. The scripts are short, and both the limit and the
// rate let far more executions through than are submitted, so that they do not delay the end of the
// run. But one submission has more executions than the limit lets run at the same time.
const (
	gateName  = "chaos"
	mostGated = 5
	atOnce    = 12
	mostPaced = 6
	gatedRest = 3 * time.Second
)

// gateLook is the state of the limit at one moment.
type gateLook struct {
	At      time.Time `json:"at"`
	Held    int       `json:"held"`
	Waiting int       `json:"waiting"`
	Max     int       `json:"max"`
}

// gated submits executions under the limit, some of them also under the rate, and reads the limit
// from time to time.
func (c *crowd) gated(ctx context.Context) {
	r := c.dice()
	for {
		all := make([]belay.Submission, atOnce)
		for i := range all {
			all[i] = c.root([]op{{Do: "step", Ms: 20}, {Do: "step", Ms: 1 + r.IntN(80)}})
			all[i].Concurrency = &belay.Concurrency{Name: gateName, Max: mostGated}
			if i%3 == 0 {
				all[i].Rate = &belay.Rate{Name: gateName, Max: mostPaced, Per: belay.Duration(time.Second)}
			}
		}
		if c.submitAll(ctx, r, all...) != nil {
			return
		}
		for range 4 {
			c.lookAtGate(ctx, c.servers[r.IntN(len(c.servers))])
			if pause(ctx, gatedRest/4) != nil {
				return
			}
		}
	}
}

// lookAtGate reads the limit once.
func (w *world) lookAtGate(ctx context.Context, s *server) {
	at := time.Now()
	g, err := s.hasty.Gate(ctx, belay.Gate(belay.GateLimit, gateName))
	if err != nil || g.Limit == nil {
		return
	}
	w.lookedAtGate(gateLook{At: at, Held: g.Held, Waiting: g.Waiting, Max: g.Limit.Max})
}

// lookAtGateInTheEnd reads the limit after all executions have ended.
func (w *world) lookAtGateInTheEnd(ctx context.Context) error {
	g, err := w.servers[0].client.Gate(ctx, belay.Gate(belay.GateLimit, gateName))
	if err != nil {
		return fmt.Errorf("read the limit: %w", err)
	}
	w.lookedAtGate(gateLook{At: time.Now(), Held: g.Held, Waiting: g.Waiting, Max: mostGated})
	return nil
}

func (h *history) lookedAtGate(l gateLook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gates = append(h.gates, l)
}

// g16 checks G16 for the limit as the servers showed it: the servers never showed more taken places
// than the limit has, and no place is taken after all executions have ended.
func g16(f *finding) {
	for _, s := range f.stories {
		if underLimit(s) {
			for range s.Runs {
				f.Count("run under the limit")
			}
		}
	}
	for _, l := range f.Gates {
		f.OK()
		if l.Waiting > 0 {
			f.Count("execution found waiting at the limit")
		}
		if l.Held > l.Max || l.Max != mostGated {
			f.Violation(nil, "at %s %d places of the limit were taken, which has %d, not %d", l.At.Format(clock),
				l.Held, l.Max, mostGated)
		}
		if l.At.After(f.Settled) && (l.Held > 0 || l.Waiting > 0) {
			f.Violation(nil, "after all executions had ended, %d places were taken and %d executions waited", l.Held,
				l.Waiting)
		}
	}
}

// underLimit reports whether an execution names the limit that all servers share.
func underLimit(s *story) bool {
	return s.Gates != nil && s.Gates.Concurrency != nil && s.Gates.Concurrency.Name == gateName
}

// gateMutants are the planted bugs of gates.
var gateMutants = []mutant{
	{"executions beyond the limit", "G16", func(p *planting) bool {
		n := 0
		for _, s := range p.stories {
			if !underLimit(s) || len(s.Runs) == 0 {
				continue
			}
			for i := range s.Events {
				if s.Events[i].Final {
					s.Events[i].At = p.Settled.Add(time.Hour)
					n++
				}
			}
		}
		return n > mostGated
	}, ""},
	{"place left in the end", "G16", func(p *planting) bool {
		n := len(p.Gates)
		if n == 0 {
			return false
		}
		p.Gates = append(p.Gates[:n-1:n-1], gateLook{At: p.Settled.Add(time.Second), Held: 1, Max: mostGated})
		return true
	}, ""},
}
