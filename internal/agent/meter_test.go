package agent

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: a message counts once, with the largest numbers that the agent reports for it; the message result has the last
// word about money, and never lowers the tokens.
func TestUsageOfMessages(t *testing.T) {
	m := &meter{prices: []Price{{Model: "*", Input: 1e9}, {Model: "big-", Input: 3e9, Output: 15e9, CacheRead: 3e8}}}
	r := newReader(OutputStreamJSON, func(Progress) {}, nil)
	r.meter = m
	say := func(format string, args ...any) { r.write(fmt.Appendf(nil, format+"\n", args...)) }
	spoken := `{"type":"assistant","message":{"id":%q,"model":%q,"usage":` +
		`{"input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":%d}}}`
	say(spoken, "a", "big-1", 1000, 2000, 1)
	say(spoken, "a", "big-1", 1000, 2000, 100)
	say(spoken, "b", "other", 500, 0, -7)
	say(`{"type":"stream_event","event":{"type":"message_start",` +
		`"message":{"id":"c","model":"big-1","usage":{"output_tokens":1}}}}`)
	say(`{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":40}}}`)
	say(`{"type":"assistant","message":{"id":"","usage":{"input_tokens":9}}}`)
	say(`{"type":"assistant","message":{"id":"x","usage":"9"}}`)
	want := belay.ModelUsage{InputTokens: 3500, OutputTokens: 140, CacheReadTokens: 2000,
		Money: 3_000_000 + 600_000 + 1_500_000 + 500_000 + 600_000}
	if got := m.total(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	say(`{"type":"result","total_cost_usd":0.5,"usage":{"input_tokens":3500,"output_tokens":141},` +
		`"modelUsage":{"big-1":{"inputTokens":4000,"cacheReadInputTokens":2000,"outputTokens":1}}}`)
	want.InputTokens, want.OutputTokens, want.Money = 6000, 141, 500_000_000
	if got := m.total(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Rule: an agent that makes up any number of messages takes no more memory.
func TestManyMessagesAreCounted(t *testing.T) {
	m := &meter{}
	for i := range 10 * maxCounted {
		m.message(fmt.Sprint(i), "m", &tokenCounts{Input: 1})
	}
	if u := m.total(); u.InputTokens != 10*maxCounted || u.UnpricedTokens != 10*maxCounted ||
		len(m.recent) != maxCounted {
		t.Errorf("%+v", u)
	}
}

// Rule: a command whose first message exceeds the limit is ended, even if the message arrives before the meter can end
// the command, and so is the command of the next turn.
func TestAnEarlyMessageExceedsTheLimit(t *testing.T) {
	m := &meter{limit: &MaxCost{Tokens: 5}}
	m.message("a", "m", &tokenCounts{Input: 10})
	for range 2 {
		ended := make(chan error, 1)
		over := m.watch(func(why error) { ended <- why })
		select {
		case why := <-ended:
			if why == nil {
				t.Error("no reason")
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the command goes on")
		}
		over()
		m.renew()
	}
}

// Rule: a price that is none is refused.
func TestPrices(t *testing.T) {
	for _, bad := range []string{"", "m", "m:1", "m:1:2:3", ":1:2",
		"m:x:2", "m:-1:2", "m:NaN:2", "m:1:Inf", "m:1:2:3:4:5"} {
		if p, err := ParsePrice(bad); belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%q: %+v, %v", bad, p, err)
		}
	}
	if p, err := ParsePrice("m:3:15"); err != nil || p != (Price{"m", 3e9, 15e9, 3e9, 3e9}) {
		t.Errorf("%+v, %v", p, err)
	}
}

// Rule: a prompt can lower the limit of the server, and not raise it.
func TestLimitsOfCost(t *testing.T) {
	server := &MaxCost{Tokens: 100}
	for text, want := range map[string]MaxCost{
		`{"tokens":50}`: {Tokens: 50}, `{"tokens":500}`: {Tokens: 100}, `{"usd":0.5}`: {100, 5e8},
	} {
		var m MaxCost
		if err := json.Unmarshal([]byte(text), &m); err != nil || m.Check() != nil {
			t.Fatal(err, m.Check())
		}
		if got := m.lower(server); *got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if err := (*MaxCost)(nil).over(belay.ModelUsage{InputTokens: 1 << 40}); err != nil {
		t.Error(err)
	}
}
