package postgres_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/pgtest"
	"github.com/belaydev/belay/internal/store/postgres"
)

func TestScratch(t *testing.T) {
	if os.Getenv("SCRATCH") == "" {
		t.Skip()
	}
	srv := pgtest.Start(t, pgtest.Options{Settings: map[string]string{"log_min_duration_statement": "0", "log_statement_stats": "on", "log_parameter_max_length": "0", "log_line_prefix": ""}})
	url := srv.Database(t)
	s, err := postgres.Open(context.Background(), url, postgres.Options{Writers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if sql := os.Getenv("SCRATCH_SQL"); sql != "" {
		if _, err := srv.Query("test_1", sql); err != nil {
			t.Fatal(err)
		}
	}
	var counter atomic.Uint64
	l := &load{tb: t, store: s, worker: belay.WorkerID{1}, counter: &counter, lane: machine.NewLane("default", "noop", "", 0, nil)}
	l.fold(&machine.Open{WorkerSpec: belay.WorkerSpec{ID: l.worker, Name: "bench", Workflows: []belay.Registration{{Workflow: "noop"}}, Capacity: 1000, TTL: belay.Duration(1 << 50)}})
	const batch, rounds = 1000, 30
	var took [4]time.Duration
	for i := 0; i < rounds; i++ {
		t0 := time.Now()
		l.fold(l.submits(batch)...)
		t1 := time.Now()
		won := l.fold(l.claims(batch))[0].Claims
		t2 := time.Now()
		l.fold(l.saves(won, 1)...)
		t3 := time.Now()
		l.fold(l.settles(won)...)
		t4 := time.Now()
		took[0] += t1.Sub(t0)
		took[1] += t2.Sub(t1)
		took[2] += t3.Sub(t2)
		took[3] += t4.Sub(t3)
	}
	fmt.Println("submit claim save settle", took[0]/rounds, took[1]/rounds, took[2]/rounds, took[3]/rounds)
	re := regexp.MustCompile(`duration: ([0-9.]+) ms  (bind|parse|execute) [^:]+: *(.*)`)
	use := regexp.MustCompile(`([0-9.]+) s user, ([0-9.]+) s system`)
	sum := map[string]float64{}
	n := map[string]int{}
	lines := strings.Split(srv.Log(), "\n")
	key := ""
	total := 0.0
	for i, line := range lines {
		if u := use.FindStringSubmatch(line); u != nil && key != "" {
			a, _ := strconv.ParseFloat(u[1], 64)
			b, _ := strconv.ParseFloat(u[2], 64)
			sum[key] += (a + b) * 1000
			total += (a + b) * 1000
			n[key]++
			key = ""
		}
		m := re.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		text := m[3]
		for j := i + 1; j < len(lines) && strings.HasPrefix(lines[j], "\t"); j++ {
			text += lines[j]
		}
		text = strings.Join(strings.Fields(text), " ")
		if len(text) > 90 {
			text = text[:60] + " … " + text[len(text)-30:]
		}
		key = m[2] + " " + text
	}
	var keys []string
	for k := range sum {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return sum[keys[i]] > sum[keys[j]] })
	fmt.Printf("%8.3f µs/row in all\n", total*1000/rounds/batch)
	for _, k := range keys[:min(26, len(keys))] {
		fmt.Printf("%8.3f µs/row  n=%d %s\n", sum[k]*1000/rounds/batch, n[k], k)
	}
}
