package trial

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Times are percentiles in milliseconds.
type Times struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// TimesOf returns the percentiles of v; it sorts v.
func TimesOf(v []time.Duration) *Times {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	at := func(p float64) float64 { return float64(v[int(p*float64(len(v)-1))].Nanoseconds()) / 1e6 }
	return &Times{N: len(v), P50: at(.50), P95: at(.95), P99: at(.99), Max: at(1)}
}

// Starts measures the time from the call that submits an execution until the execution starts, on
// the clock of this process.
type Starts struct {
	mu    sync.Mutex
	began map[int]time.Time
	took  []time.Duration
	twice int
	left  int
	all   chan struct{}
}

// NewStarts returns a Starts for n executions.
func NewStarts(n int) *Starts {
	return &Starts{began: make(map[int]time.Time, n), left: n, all: make(chan struct{})}
}

// Submit records that the i-th execution is about to be submitted.
func (s *Starts) Submit(i int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began[i] = now
}

// Start records that the i-th execution runs.
func (s *Starts) Start(i int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	began, ok := s.began[i]
	if !ok {
		s.twice++
		return
	}
	delete(s.began, i)
	s.took = append(s.took, now.Sub(began))
	if s.left--; s.left == 0 {
		close(s.all)
	}
}

// Times waits until all executions have started, at most for the time patience, and returns the
// percentiles.
func (s *Starts) Times(patience time.Duration) (*Times, error) {
	select {
	case <-s.all:
	case <-time.After(patience):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left > 0 || s.twice > 0 {
		return nil, fmt.Errorf("%d executions did not start within %s, %d started twice", s.left, patience, s.twice)
	}
	return TimesOf(s.took), nil
}

// Forget removes executions that will not start.
func (s *Starts) Forget(first, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := first; i < first+n; i++ {
		delete(s.began, i)
	}
}

// SoFar returns the times of the executions that have started, nil if none has.
func (s *Starts) SoFar() *Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	return TimesOf(s.took)
}
