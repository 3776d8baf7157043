package belay

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// ModelUsage is the usage of language models: tokens and money. The fields of a correction may be negative.
type ModelUsage struct {
	// InputTokens are all tokens that the model has read. CacheReadTokens and CacheWriteTokens are the
	// parts of them that were read from a cache and written to one.
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
	CacheReadTokens  int64 `json:"cache_read_tokens,omitempty"`
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"`
	// Money is the price of the tokens, without that of UnpricedTokens, whose price is unknown.
	Money          USD   `json:"cost_usd,omitempty"`
	UnpricedTokens int64 `json:"unpriced_tokens,omitempty"`
}

// MaxUsage is the largest value of a field of a ModelUsage that a run reports, and -MaxUsage the smallest.
const MaxUsage = 1 << 50

// Tokens returns the sum of all tokens.
func (u ModelUsage) Tokens() int64 { return u.InputTokens + u.OutputTokens }

// Add returns the sum of two usages. A field whose sum is too large for an int64 gets the largest value.
func (u ModelUsage) Add(v ModelUsage) ModelUsage {
	return ModelUsage{
		addUsage(u.InputTokens, v.InputTokens), addUsage(u.OutputTokens, v.OutputTokens),
		addUsage(u.CacheReadTokens, v.CacheReadTokens), addUsage(u.CacheWriteTokens, v.CacheWriteTokens),
		USD(addUsage(int64(u.Money), int64(v.Money))), addUsage(u.UnpricedTokens, v.UnpricedTokens),
	}
}

func addUsage(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < -math.MaxInt64-b:
		return -math.MaxInt64
	}
	return a + b
}

// Minus returns the difference of two usages.
func (u ModelUsage) Minus(v ModelUsage) ModelUsage {
	return u.Add(ModelUsage{
		-v.InputTokens, -v.OutputTokens, -v.CacheReadTokens, -v.CacheWriteTokens, -v.Money, -v.UnpricedTokens,
	})
}

// Check returns an error if a field is outside of MaxUsage.
func (u ModelUsage) Check() error {
	for _, v := range []int64{
		u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens, int64(u.Money), u.UnpricedTokens,
	} {
		if v > MaxUsage || v < -MaxUsage {
			return &Error{Code: CodeInvalid, Message: fmt.Sprintf("a usage of %d is too large", v)}
		}
	}
	return nil
}

// USD is an amount of money in billionths of a US dollar. In JSON it is the number of dollars with up to
// nine decimals, such as 0.0125.
type USD int64

const perDollar = 1_000_000_000

// USDOf returns the nearest USD to a number of dollars. It returns 0 for a number that is negative or no
// number, and the largest reported amount (MaxUsage) for a larger one.
func USDOf(dollars float64) USD {
	switch v := math.Round(dollars * perDollar); {
	case !(v > 0):
		return 0
	case v >= MaxUsage:
		return MaxUsage
	default:
		return USD(v)
	}
}

// String returns the dollars as a decimal number without needless zeros, such as "0.0125".
func (d USD) String() string {
	sign, whole, rest := "", int64(d)/perDollar, int64(d)%perDollar
	if d < 0 {
		sign, whole, rest = "-", -whole, -rest
	}
	return sign + strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%09d", whole, rest), "0"), ".")
}

// MarshalJSON writes the dollars as a number.
func (d USD) MarshalJSON() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalJSON reads a number of dollars, and rounds it to billionths.
func (d *USD) UnmarshalJSON(b []byte) error {
	var v float64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if v < 0 {
		*d = -USDOf(-v)
		return nil
	}
	*d = USDOf(v)
	return nil
}

// UsageFilter selects usage and groups it.
type UsageFilter struct {
	// Since and Until select whole days of UTC, by the store's clock: the days from that of Since to the day
	// before that of Until. If Until is within a day, that day counts. Zero means no bound.
	Since, Until time.Time
	// By is "day", "job" (the execution), "workflow", or "label:KEY"; empty means day.
	By string
	// Workflow and Labels select the usage of executions of this workflow and with these labels.
	Workflow string
	Labels   map[string]string
	// Limit is the largest number of groups: 100 if it is 0, and never more than 1,000.
	Limit int
}

// UsageGroup is the usage of a day, a job, a workflow, or a value of a label.
type UsageGroup struct {
	// Key is the day as 2026-11-28, the id of the execution, the name of the workflow, or the value of the label;
	// empty for the executions without the label.
	Key string `json:"key"`
	ModelUsage
}

// UsageReport is the usage that a UsageFilter selects.
type UsageReport struct {
	By    string     `json:"by" doc:"The kind of the groups: day, job, workflow, or label:KEY."`
	Total ModelUsage `json:"total" doc:"The sum of all groups, also of those that the limit left out."`
	// Groups are sorted by day, or else by tokens, the most first.
	Groups []UsageGroup `json:"groups" doc:"The days in their order; otherwise the groups with the most tokens first."`
	// Omitted is the number of groups that the limit left out.
	Omitted int `json:"omitted,omitempty" doc:"The number of groups that the limit left out."`
}
