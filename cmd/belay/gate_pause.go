package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

// gateFlags are flags with which a command acts on a gate instead of an execution. Each flag has
// the name of a kind of gates.
type gateFlags struct {
	names map[string]*string // the values of the flags, by kind of gate
	until string
}

func (f *gateFlags) register(a *app, c *cobra.Command, action belay.GateAction) {
	f.names = make(map[string]*string)
	for _, kind := range gateKinds {
		f.names[kind] = c.Flags().String(kind, "", c.Name()+" the "+kind+" of this `name` in place of an execution")
		_ = c.RegisterFlagCompletionFunc(kind, a.completeNames(kind, action == belay.GateResume))
	}
}

// gate returns the gate that the flags select, or "" if they select no gate.
func (f *gateFlags) gate(c *cobra.Command) (id belay.GateID, err error) {
	for _, kind := range gateKinds {
		switch {
		case !c.Flags().Changed(kind):
		case *f.names[kind] == "":
			return "", usage("--%s is empty; give a name", kind)
		case id != "":
			return "", usage("give --%s or --%s, not both", id.Kind(), kind)
		default:
			id = belay.Gate(kind, *f.names[kind])
		}
	}
	return id, nil
}

// orGate lets a command on an execution also act on the gate that flags select.
func (a *app) orGate(c *cobra.Command, f *gateFlags, action belay.GateAction) *cobra.Command {
	f.register(a, c, action)
	one, onExecution := c.Args, c.RunE
	c.Use = c.Name() + " ID | --queue NAME | --workflow NAME | --target NAME | …"
	c.Args = func(c *cobra.Command, args []string) error {
		gate, err := f.gate(c)
		switch {
		case err != nil:
			return err
		case gate == "" && f.until != "":
			return usage("--until needs --queue, --workflow or --target; a paused execution waits for belay resume")
		case gate == "":
			return one(c, args)
		case len(args) > 0:
			return usage("give an execution or --%s, not both", gate.Kind())
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		gate, err := f.gate(c)
		if err != nil || gate == "" {
			return onExecution(c, args)
		}
		until, err := moment("until", f.until, time.Now())
		if err != nil {
			return err
		}
		reason, err := c.Flags().GetString("reason")
		if err != nil {
			return err
		}
		return a.changeGate(c, belay.GateChange{Gate: gate, Action: action, Until: until, Reason: reason})
	}
	return c
}
