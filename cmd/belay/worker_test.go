package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/internal/config"
)

// Rule: the flags of a worker have precedence over its configuration.
func TestTheFlagsOfAWorkerWinOverItsConfiguration(t *testing.T) {
	for _, x := range []struct {
		flags, environ []string
		ttl, heartbeat time.Duration
	}{
		{nil, nil, 0, 0},
		{nil, []string{"BELAY_WORKER_TTL=60", "BELAY_WORKER_HEARTBEAT=20s"}, time.Minute, 20 * time.Second},
		{[]string{"--ttl=9s"}, []string{"BELAY_WORKER_TTL=60"}, 9 * time.Second, 0},
		{[]string{"--heartbeat=3s"}, []string{"BELAY_WORKER_TTL=60"}, time.Minute, 3 * time.Second},
		{[]string{"--ttl=0"}, []string{"BELAY_WORKER_TTL=60"}, 0, 0},
	} {
		cfg, err := config.Load(config.Sources{Environ: x.environ})
		if err != nil {
			t.Fatal(err)
		}
		c, o := &cobra.Command{}, workerOptions{cfg: cfg, concurrency: 1}
		c.Flags().DurationVar(&o.ttl, "ttl", 0, "")
		c.Flags().DurationVar(&o.heartbeat, "heartbeat", 0, "")
		if err := c.ParseFlags(x.flags); err != nil {
			t.Fatal(err)
		}
		if err := o.complete(c, &app{}); err != nil || o.ttl != x.ttl || o.heartbeat != x.heartbeat {
			t.Errorf("%v with %v: ttl %s, heartbeat %s, %v", x.flags, x.environ, o.ttl, o.heartbeat, err)
		}
	}
}

// Rule: the error of a failed health check has the exit code of the command and the last line of
// its output, or only the end of this line if the line is long. A check that takes too long is
// killed with all of its processes.
func TestAHealthCheck(t *testing.T) {
	for _, x := range []struct{ command, want string }{
		{"true", ""},
		{"echo first; echo last; exit 3", "exit code 3: last"},
		{"head -c 100000 /dev/zero | tr '\\0' x; exit 1", "exit code 1: " + strings.Repeat("x", tailSize)},
		{"no-such-program-of-belay", "exit code 127"},
	} {
		err := runHealthCheck(t.Context(), x.command)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want) ||
			len(err.Error()) > tailSize+100) {
			t.Errorf("%s: %v", x.command, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := runHealthCheck(ctx, "sleep 1000 & sleep 1000")
	if err == nil || !strings.Contains(err.Error(), "took too long") {
		t.Errorf("a check that hangs: %v", err)
	}
}
