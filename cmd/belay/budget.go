package main

import (
	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

// costFlag is a flag for a budget, nil if the flag is not set.
type costFlag struct{ budget *belay.Budget }

// Set implements pflag.Value.
func (f *costFlag) Set(s string) error {
	cost, err := belay.ParseCost(s)
	if err == nil {
		f.budget = &belay.Budget{Cost: cost}
	}
	return err
}

// String implements pflag.Value.
func (f *costFlag) String() string {
	if f.budget == nil {
		return ""
	}
	return f.budget.Cost.String()
}

// Type implements pflag.Value.
func (f *costFlag) Type() string { return "tokens" }

func (a *app) budgetCommand() *cobra.Command {
	var f costFlag
	c := a.actionCommand("budget", "Give an execution another budget",
		"Give an execution another budget. When the cost of an execution and its descendants\n"+
			"reaches the budget, they are paused. If the cost is below the new budget, they continue.\n"+
			"A child has no budget: name its root.\n\n"+
			"  belay budget ID --cost 20 --reason \"the review is worth it\"",
		func(c *belay.Control) { c.Action, c.Budget = belay.ActionBudget, f.budget })
	c.Flags().Var(&f, "cost", "the new budget, as a number of `tokens` such as 12.5; required")
	_ = c.MarkFlagRequired("cost")
	return c
}
