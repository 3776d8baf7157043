package belay

import (
	"strings"
	"testing"
)

// exchange returns a target at an exchange.
func exchange(name string, with ...func(*NotificationTarget)) *NotificationTarget {
	t := &NotificationTarget{Name: "t", Exchange: name}
	for _, f := range with {
		f(t)
	}
	return t
}

// Rule: a target names a URL or an exchange. An exchange has no format, no secret, and no reference to a secret.
func TestTargetsAtExchanges(t *testing.T) {
	long := strings.Repeat("x", MaxExchangeName)
	for _, c := range []struct {
		target *NotificationTarget
		wrong  string // empty if the target is valid
	}{
		{exchange("attune.executions"), ""},
		{exchange("amq.topic"), ""},
		{exchange("orders/ü", func(t *NotificationTarget) { t.RoutingKey, t.Format = "a.b", FormatEvent }), ""},
		{exchange(long, func(t *NotificationTarget) { t.RoutingKey = long }), ""},
		{exchange(long + "x"), "the exchange has 256 bytes"},
		{exchange("x", func(t *NotificationTarget) { t.RoutingKey = long + "x" }), "the routing_key has 256 bytes"},
		{exchange("a\x00b"), "control character"},
		{exchange("a\xff"), "invalid UTF-8"},
		{exchange("x", func(t *NotificationTarget) { t.RoutingKey = "a\nb" }), "control character"},
		{exchange("${{ secrets.A }}"), "cannot refer to a secret"},
		{exchange("x", func(t *NotificationTarget) { t.RoutingKey = "${{ secrets.A }}" }), "cannot refer to a secret"},
		{exchange("", func(t *NotificationTarget) { t.RoutingKey = "a" }), "a routing key without an exchange"},
		{exchange("", func(t *NotificationTarget) { t.RoutingKey, t.URL = "a", "https://a/" }), "without an exchange"},
		{exchange(""), "the url is empty"},
		{exchange("x", func(t *NotificationTarget) { t.URL = "https://a/" }), "not both"},
		{exchange("x", func(t *NotificationTarget) { t.Format = FormatSlack }), "the format event"},
		{exchange("x", func(t *NotificationTarget) { t.Format = "xml" }), "the format event"},
		{exchange("x", func(t *NotificationTarget) { t.Secret = "${{ secrets.A }}" }), "not signed"},
		{exchange("x", func(t *NotificationTarget) { t.On = []State{Running} }), "on has the state running"},
		{exchange("x", func(t *NotificationTarget) { t.On = []State{Failed, Failed} }), "twice"},
	} {
		err := CheckNotificationTarget("put", c.target)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v: %v, want %q", c.target, err, c.wrong)
		}
	}
}

// Rule: without on and alerts, an exchange gets each end; with alerts and without on, it gets no end.
func TestEndsForExchanges(t *testing.T) {
	for _, c := range []struct {
		target *NotificationTarget
		want   []State
	}{
		{exchange("x"), []State{Succeeded, Failed, Cancelled}},
		{exchange("x", func(t *NotificationTarget) { t.On = []State{Cancelled} }), []State{Cancelled}},
		{exchange("x", func(t *NotificationTarget) { t.Alerts = []Alert{AlertNoWorker} }), nil},
	} {
		var got []State
		for s := Pending; s <= Cancelled+1; s++ {
			if c.target.Reports(s) {
				got = append(got, s)
			}
		}
		if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%+v reports %v, want %v", c.target, got, c.want)
		}
	}
}

// Rule: each exchange has its own circuit breaker and limit, whose names are valid, whatever the exchange is called.
func TestEndpointsOfExchanges(t *testing.T) {
	long := strings.Repeat("ü", MaxExchangeName/2)
	seen := make(map[string]bool)
	for _, name := range []string{"a", "b", long, long[2:], "exchange:a"} {
		end := exchange(name).Endpoint()
		if seen[end] || len(end) > MaxName || !strings.HasPrefix(end, NotificationPrefix+"exchange:") ||
			strings.ToValidUTF8(end, "?") != end {
			t.Errorf("%.20q has the endpoint %q", name, end)
		}
		seen[end] = true
	}
	other := exchange("a", func(t *NotificationTarget) { t.Name, t.RoutingKey = "u", "key" })
	if other.Endpoint() != exchange("a").Endpoint() {
		t.Error("two targets at one exchange have two endpoints")
	}
}
