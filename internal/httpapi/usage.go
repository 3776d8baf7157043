package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/belaydev/belay"
)

type usageRequest struct {
	By       string    `query:"by" maxLength:"206" pattern:"^(day|job|workflow|label:.+)$" doc:"The groups: day, job, workflow, or label:KEY; day, unless said otherwise."`
	Since    time.Time `query:"since" doc:"Only usage of the UTC day of this time, and of later days, by the store's clock."`
	Until    time.Time `query:"until" doc:"Only usage before this time. If it is within a UTC day, the whole day counts."`
	Workflow string    `query:"workflow" maxLength:"200" doc:"Only usage of executions of this workflow."`
	Labels   []string  `query:"label,explode" doc:"name=value or name:value; may be repeated: only usage of executions with all of these labels."`
	Limit    int       `query:"limit" minimum:"1" maximum:"1000" doc:"The largest number of groups; 100, unless said otherwise."`
}

// usage adds the route of the usage of language models.
func (a *api) usage() {
	add(a, route{
		id: "reportUsage", method: http.MethodGet, path: "/v1/usage", tag: "executions",
		summary: "Sum up the tokens and the money that language models cost",
		doc: "The sums of the usage that runs reported, by day, job, workflow or label. The total has all selected usage, also " +
			"that of groups beyond the limit. Usage outlives its execution.",
		scopes: []belay.Scope{belay.ScopeRead}, lists: []string{"label"}, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *usageRequest) (*struct{ Body belay.UsageReport }, error) {
		labels, err := labelsOf(in.Labels)
		if err != nil {
			return nil, err
		}
		report, err := a.b.Usage(ctx, belay.UsageFilter{
			By: in.By, Since: in.Since, Until: in.Until, Workflow: in.Workflow, Labels: labels, Limit: in.Limit,
		})
		return &struct{ Body belay.UsageReport }{report}, err
	})
}
