package config_test

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/config"
)

// Rule: a configured default that equals Belay's own default sets no field of the policy. So an
// unchanged configuration gives executions an empty policy. Every other configured default sets its
// field.
func TestOnlyOtherDefaultsSetAPolicy(t *testing.T) {
	c := config.Default()
	if p := c.Defaults.Policy(); p != (belay.Policy{}) {
		t.Errorf("unchanged, they set %+v", p)
	}
	c.Defaults = config.Defaults{
		MaxAttempts: 7, BackoffBase: 2 * time.Second, BackoffCap: time.Minute, StartTimeout: 3 * time.Second,
		ScheduledTimeout: 4 * time.Second, OnNoWorker: "fail",
	}
	want := belay.Policy{
		MaxAttempts: 7, BackoffBase: belay.Duration(2 * time.Second), BackoffCap: belay.Duration(time.Minute),
		StartTimeout: belay.Duration(3 * time.Second), ScheduledTimeout: belay.Duration(4 * time.Second),
		OnNoWorker: belay.FailNoWorker,
	}
	if p := c.Defaults.Policy(); p != want {
		t.Errorf("they set %+v, want %+v", p, want)
	}
}
