package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
	"github.com/belaydev/belay/workflow"
)

// Bounds for a foreach of 10,000 items.
const (
	mostHeap   = 64 << 20 // by which the memory of a server may grow
	leastKept  = 0.9      // of the throughput of another lane
	mostGrowth = 1.2      // how much more processor time the last items may take than the first
)

// Rule: a foreach of 10,000 items costs little memory, its last items cost about as much as its first, and other lanes
// keep their throughput beside it.
func TestCostOfVeryManyItems(t *testing.T) {
	if !*long {
		t.Skip("this test measures for minutes; run it with -args -long, on an idle machine")
	}
	t.Run("sqlite", func(t *testing.T) { (&costs{group: stores["sqlite"](t)}).measure() })
	t.Run("postgres", func(t *testing.T) {
		srv := pgtest.Start(t, pgtest.Options{})
		(&costs{newGroup(t, srv.Database(t), 3), srv}).measure()
	})
}

// costs measures what a foreach costs the servers of a group.
type costs struct {
	*group
	database *pgtest.Server // nil with SQLite
}

func (c *costs) measure() {
	c.t.Logf("load average %s", strings.TrimSpace(read(c.t, "/proc/loadavg")))
	w := c.members[0].items("item")
	c.foreach("item", 1000, 0).ends(patience) // a first foreach fills caches
	c.hundreds()
	w.kill()
	c.beside()
}

// spent returns the processor time that the servers and the database have used.
func (c *costs) spent() time.Duration {
	c.t.Helper()
	var all time.Duration
	for _, m := range c.members {
		all += scheduled(c.t, m.proc.cmd.Process.Pid)
	}
	if c.database != nil {
		all += c.database.CPU()
	}
	return all
}

// scheduled returns the processor time of the threads of a process. It is more exact than that of /proc/PID/stat, which
// counts in hundredths of a second.
func scheduled(t *testing.T, pid int) time.Duration {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	var all time.Duration
	for _, file := range files {
		var ns int64
		if _, err := fmt.Sscan(read(t, file), &ns); err == nil {
			all += time.Duration(ns)
		}
	}
	return all
}

// hundreds runs 10,000 items that take no time, three times, and compares the costs of the first fifth with those of
// the last. It judges the median, because one run has few commits, and other processes disturb it.
func (c *costs) hundreds() {
	before := make([]int, len(c.members))
	for i, m := range c.members {
		// The kernel begins to count the peak of the memory anew.
		must(c.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.proc.cmd.Process.Pid), []byte("5"), 0))
		before[i] = m.proc.resident()
	}
	all := []float64{c.growth()}
	for i, m := range c.members {
		grown := m.proc.resident() - before[i]
		c.t.Logf("the memory of server %d has grown by %d MiB, from %d MiB", i+1, grown>>20, before[i]>>20)
		if grown > mostHeap {
			c.t.Errorf("the memory of server %d has grown by %d MiB", i+1, grown>>20)
		}
	}
	all = append(all, c.growth(), c.growth())
	if growth := slices.Sorted(slices.Values(all))[1]; growth > mostGrowth {
		c.t.Errorf("the last items cost %.2f times as much as the first; at most %.2f", growth, mostGrowth)
	}
}

// growth runs one foreach, and returns the cost of its last fifth as a multiple of the cost of its first.
func (c *costs) growth() float64 {
	const items, part = 10_000, 2000
	had, began := c.begun("item"), time.Now()
	x := c.foreach("item", items, 0)
	at := func(n int) (begun int, spent time.Duration) {
		x.until(had + n)
		return c.begun(x.workflow) - had, c.spent()
	}
	zero, start := at(1)
	first, early := at(part)
	from, late := at(items - part)
	last, end := at(items)
	x.ends(patience)
	begin := (early - start) * 100 / time.Duration(first-zero)
	finish := (end - late) * 100 / time.Duration(last-from)
	growth := float64(finish) / float64(begin)
	c.t.Logf("%d items in %s; a hundred cost %s of processor time at the beginning and %s at the end, %.2f times as "+
		"much", items, time.Since(began).Round(time.Millisecond), begin, finish, growth)
	return growth
}

// beside measures the throughput of another lane, alternately while a foreach is paused and while a hundred of its
// items are under way, each of which takes a second.
func (c *costs) beside() {
	const rounds, length = 4, 6 * time.Second
	c.members[0].items("item")
	c.members[len(c.members)-1].items("other")
	for range 2 { // a first round fills caches
		c.flow(length / 2)
	}
	x := c.foreach("item", 10_000, time.Second)
	had := c.begun("item")
	x.until(had + 2*itemSlots)
	var ratios []float64
	for range rounds {
		with := c.flow(length)
		x.act(belay.ActionPause)
		c.members[0].proc.after(1500 * time.Millisecond) // the items under way end
		without := c.flow(length)
		x.act(belay.ActionResume)
		c.members[0].proc.after(1500 * time.Millisecond)
		c.t.Logf("the other lane ends %.0f executions/s, and %.0f/s without the foreach", with, without)
		ratios = append(ratios, with/without)
	}
	x.act(belay.ActionCancel)
	if e := x.awaited(patience); e.State != belay.Cancelled {
		c.t.Errorf("the cancelled document is %s", e.State)
	}
	slices.Sort(ratios)
	kept := ratios[rounds/2]
	c.t.Logf("the other lane keeps %.2f of its throughput (%.2f to %.2f)", kept, ratios[0], ratios[rounds-1])
	if kept < leastKept {
		c.t.Errorf("the other lane keeps only %.2f of its throughput", kept)
	}
}

// flow submits executions of another workflow and awaits their ends, for a time. It returns how many end in a second.
func (c *costs) flow(length time.Duration) float64 {
	c.t.Helper()
	const callers = 32
	ctx, cancel := context.WithTimeout(c.t.Context(), length)
	defer cancel()
	var ended atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range callers {
		b := c.members[i%len(c.members)].client
		all.Go(func() {
			for ctx.Err() == nil {
				h, err := workflow.Start[int](ctx, b, "other", map[string]int{"N": -1})
				if err == nil {
					_, err = h.Result(ctx)
				}
				if err == nil {
					ended.Add(1)
				} else if ctx.Err() == nil {
					c.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(ended.Load()) / time.Since(began).Seconds()
}
