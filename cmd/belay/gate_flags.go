package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

// ownGates are the flags for the gates that a submission names.
type ownGates struct {
	concurrency, whenFull, rate, target, requires string
	preemptible                                   bool
}

func (f *ownGates) register(a *app, c *cobra.Command) {
	c.Flags().StringVar(&f.concurrency, "concurrency", "",
		"let at most MAX executions with the same NAME be under way, as `NAME=MAX`")
	c.Flags().StringVar(&f.whenFull, "when-full", "",
		"with --concurrency, if MAX executions are under way: `wait`, reject the submission, or replace the oldest")
	c.Flags().StringVar(&f.rate, "rate", "",
		"let at most MAX runs of executions with the same NAME start within TIME, as `NAME=MAX/TIME`, like mail=10/s")
	c.Flags().StringVar(&f.target, "target", "",
		"the `name` of what the execution calls, like payments:charge; the execution waits while the circuit breaker "+
			"of the target is open")
	c.Flags().StringVar(&f.requires, "requires", "",
		"the resource that the runs use, and its mode, as `RESOURCE=MODE`, like gpu=llama; runs of other modes wait")
	c.Flags().BoolVar(&f.preemptible, "preemptible", false,
		"with --requires: yield at the next step or wait when another mode has waited for the maximum wait")
	for _, flag := range []string{"concurrency", "rate", "requires"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = c.RegisterFlagCompletionFunc("target", a.completeNames(belay.GateTarget, false))
	_ = c.RegisterFlagCompletionFunc("when-full", cobra.FixedCompletions([]string{"wait", "reject", "replace"},
		cobra.ShellCompDirectiveNoFileComp))
}

// gates returns the gates that the flags name. In a flag NAME=VALUE, the last = ends the name.
func (f *ownGates) gates() (g belay.Gates, err error) {
	if f.concurrency != "" {
		i := strings.LastIndexByte(f.concurrency, '=')
		limit, nerr := strconv.Atoi(f.concurrency[i+1:])
		if i < 1 || nerr != nil {
			return g, usage("--concurrency %s is not of the form NAME=MAX, as in crawler=5", quoted(f.concurrency))
		}
		g.Concurrency = &belay.Concurrency{
			Name: f.concurrency[:i], Max: limit, WhenFull: belay.WhenFull(f.whenFull),
		}
	}
	switch belay.WhenFull(f.whenFull) {
	case "", belay.WaitWhenFull, belay.RejectWhenFull, belay.ReplaceWhenFull:
	default:
		return g, usage("--when-full is %s; it can be wait, reject or replace", quoted(f.whenFull))
	}
	if f.whenFull != "" && f.concurrency == "" {
		return g, usage("--when-full needs --concurrency")
	}
	if f.rate != "" {
		i := strings.LastIndexByte(f.rate, '=')
		if i < 1 {
			return g, usage("--rate %s is not of the form NAME=MAX/TIME, as in mail=10/s", quoted(f.rate))
		}
		r := belay.Rate{Name: f.rate[:i]}
		if r.Max, r.Per, err = pace(f.rate[i+1:]); err != nil {
			return g, err
		}
		g.Rate = &r
	}
	g.Target = f.target
	if f.preemptible && f.requires == "" {
		return g, usage("--preemptible needs --requires")
	}
	if f.requires != "" {
		i := strings.LastIndexByte(f.requires, '=')
		if i < 1 || i == len(f.requires)-1 {
			return g, usage("--requires %s is not of the form RESOURCE=MODE, as in gpu=llama", quoted(f.requires))
		}
		g.Requires = &belay.Requires{
			Resource: f.requires[:i], Mode: f.requires[i+1:], Preemptible: f.preemptible,
		}
	}
	return g, nil
}
