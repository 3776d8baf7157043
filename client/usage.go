package client

import (
	"context"
	"net/url"

	"github.com/belaydev/belay"
)

// Usage sums up the usage of language models.
func (c *Client) Usage(ctx context.Context, f belay.UsageFilter) (belay.UsageReport, error) {
	const op = "report usage"
	if err := checkTexts(op, f.By, f.Workflow); err != nil {
		return belay.UsageReport{}, err
	}
	q := url.Values{}
	set(q, "by", f.By)
	set(q, "workflow", f.Workflow)
	between(q, f.Since, f.Until)
	for k, v := range f.Labels {
		if err := checkTexts(op, k, v); err != nil {
			return belay.UsageReport{}, err
		}
		q.Add("label", k+"="+v)
	}
	number(q, "limit", int64(min(max(f.Limit, 0), 1000)))
	return get[belay.UsageReport](ctx, c, op, "/v1/usage", q)
}
