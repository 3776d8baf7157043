package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/testkit/raced"
)

// peak returns the maximum growth of the memory in use while f runs.
func peak(f func()) uint64 {
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := before.HeapInuse
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapInuse)
			case <-done:
				return
			}
		}
	})
	f()
	close(done)
	watch.Wait()
	return most - before.HeapInuse
}

// However many clients read a log of 16 MiB at the same time, as text or as JSON, each client gets
// the whole log, and the memory of the server grows by no more than 300 MiB.
func TestReadersOfLogsShareTheirMemory(t *testing.T) {
	if raced.On {
		t.Skip("the race detector has memory of its own")
	}
	const size, most = 16 << 20, 300 << 20
	b, err := embedded.Open(t.Context(), "sqlite:"+t.TempDir(), embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := serveOn(t, b, httpapi.Options{})
	o := own(t, b)
	for n := range int64(size / belay.MaxChunk) {
		if err := b.Append(t.Context(), belay.Chunk{Lease: o.lease, Name: "output", N: n,
			Data: bytes.Repeat([]byte{byte('a' + n%26)}, belay.MaxChunk)}); err != nil {
			t.Fatal(err)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for accept, want := range map[string]int64{"text/plain": size, "application/json": size * 4 / 3} {
		readers := map[string]int{"text/plain": 150, "application/json": 50}[accept]
		used := peak(func() {
			var all sync.WaitGroup
			for range readers {
				all.Go(func() {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
						fmt.Sprintf("%s/v1/executions/%s/logs/output", s.url, o.lease.Execution), nil)
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Accept", accept)
					resp, err := client.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					n, err := io.Copy(io.Discard, resp.Body)
					if err != nil || resp.StatusCode != http.StatusOK || n < want {
						t.Errorf("%s: %d, %d bytes, %v", accept, resp.StatusCode, n, err)
					}
				})
			}
			all.Wait()
		})
		t.Logf("%d readers of %d MiB as %s took %d MiB", readers, size>>20, accept, used>>20)
		if used > most {
			t.Errorf("%s took %d MiB, more than %d", accept, used>>20, most>>20)
		}
	}
}

// If the clients of one caller do not read their answers, the server keeps memory for these answers
// for longer than a reader waits for memory. Other callers can still read logs, because one caller
// gets at most half of the memory.
func TestASlowReaderDoesNotBlockOtherCallers(t *testing.T) {
	s := serve(t, httpapi.Options{WriteTimeout: 10 * time.Minute})
	o := own(t, s.b)
	for n := range int64(64) {
		if err := s.b.Append(t.Context(), belay.Chunk{Lease: o.lease, Name: "output", N: n,
			Data: bytes.Repeat([]byte("x"), belay.MaxChunk)}); err != nil {
			t.Fatal(err)
		}
	}
	path := fmt.Sprintf("/v1/executions/%s/logs/output", o.lease.Execution)
	slow, other := s.withKey("slow", belay.ScopeRead), s.withKey("other", belay.ScopeRead)
	for range 40 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+slow.key)
		req.Header.Set("Accept", "text/plain")
		go func() { // the request waits for memory, and then no client reads its answer
			if resp, err := http.DefaultClient.Do(req); err == nil {
				t.Cleanup(func() { _ = resp.Body.Close() })
			}
		}()
	}
	if a := other.do(http.MethodGet, path, "", "Accept", "text/plain"); len(a.body) != 16<<20 {
		t.Errorf("another got %d bytes, %d", len(a.body), a.StatusCode)
	}
}
