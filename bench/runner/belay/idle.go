package belay

import (
	"context"
	"strings"
	"time"

	"github.com/belaydev/belay/bench/trial"
)

// usage is the resource usage of a server: memory in MB, percent of a core, and the store's
// transactions per second: all transactions, and those that write.
type usage struct{ memory, cpu, transactions, writes float64 }

// usage measures the server for the given duration.
func (b *bed) usage(ctx context.Context, long time.Duration) (u usage, err error) {
	var o *dbCounter
	var before, after dbCounts
	if strings.HasPrefix(b.url, "postgres:") {
		if o, err = watch(ctx, b.url); err != nil {
			return u, err
		}
		defer o.close(ctx)
		if before, err = o.read(ctx); err != nil {
			return u, err
		}
	}
	cpu, err := trial.ProcessCPU(b.server.PID())
	if err != nil {
		return u, err
	}
	begin := time.Now()
	pause(ctx, long)
	took := time.Since(begin)
	cpu2, err := trial.ProcessCPU(b.server.PID())
	if err != nil {
		return u, err
	}
	if o != nil {
		if after, err = o.read(ctx); err != nil {
			return u, err
		}
	}
	u.cpu = 100 * (cpu2 - cpu).Seconds() / took.Seconds()
	u.transactions = float64(after.transactions-before.transactions) / took.Seconds()
	u.writes = float64(after.writes-before.writes) / took.Seconds()
	u.memory, err = trial.ProcessMemory(b.server.PID())
	return u, err
}

// settled is how long a trial waits after the start of a server. By then the server has finished
// the work that it does only after a start, such as the first deletion by retention, and the
// database's statistics include this work.
const settled = 25 * time.Second

// idle measures a server that has no clients.
func idle(ctx context.Context, r trial.Request) (trial.Sample, error) {
	server, err := start(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	b := &bed{url: r.URL, server: server}
	pause(ctx, settled)
	u, err := b.usage(ctx, r.For)
	if err != nil {
		return trial.Sample{}, err
	}
	s := trial.Sample{Values: map[string]float64{
		"ready_ms": float64(server.ready.Microseconds()) / 1000, "server_mb": u.memory, "server_cpu_percent": u.cpu,
		"transactions_per_s": u.transactions, "writes_per_s": u.writes,
	}}
	return s, server.stop()
}
