package simulation

import (
	"math/rand/v2"

	"github.com/belaydev/belay"
)

// mostCost bounds the cost of one try of a step, in ten-thousandths of a token.
const mostCost = 400

// price makes most steps and failures of a script report a cost.
func price(r *rand.Rand, script []op) {
	for i := range script {
		o := &script[i]
		if (o.Do == "step" || o.Do == "fail" || o.Do == "hog") && r.IntN(4) > 0 {
			o.Cost = 1 + r.Int64N(mostCost)
		}
		price(r, o.Sub)
		price(r, o.Other)
	}
}

// budget is the budget of a submission; nil for none.
func (c *client) budget() *belay.Budget {
	if !c.w.plan.budgets || c.costs.IntN(2) == 0 {
		return nil
	}
	return &belay.Budget{Cost: 1 + belay.Cost(c.costs.IntN(2*mostCost))}
}

// otherBudget is the budget that an action gives an execution; nil if the action shall be another one.
// Most are larger than the budget and the cost of the execution.
func (c *client) otherBudget(x belay.Execution) *belay.Budget {
	if x.Budget == nil || x.State.Terminal() || c.costs.IntN(3) == 0 {
		return nil
	}
	if c.costs.IntN(6) == 0 {
		return &belay.Budget{Cost: 1 + belay.Cost(c.costs.Int64N(int64(x.Budget.Cost)))}
	}
	return &belay.Budget{Cost: max(x.Budget.Cost, x.CostTokens) + 1 + belay.Cost(c.costs.IntN(5*mostCost))}
}
