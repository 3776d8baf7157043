package server_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/testkit/raced"
)

// 150 clients read a job with 8 MiB of output. Each gets the last MiB of the output, in whole
// characters, and together they need little memory of the server.
func TestManyReadersOfAJob(t *testing.T) {
	const size, most = 8 << 20, 300 << 20
	readers := 150
	if raced.On || testing.Short() {
		readers = 15
	}
	r := start(t, setup{agents: &agentapi.Options{Setup: agent.Setup{Command: agent.Template{"cat"}}, QueueDepth: 10}})
	got, err := r.engine.Submit(t.Context(), belay.Submission{
		Workflow: agent.Prompted, Input: json.RawMessage(`{"prompt":"p"}`), External: true,
	})
	if err != nil || got[0].Err != nil {
		t.Fatal(err, got[0].Err)
	}
	l, err := r.engine.Lock(t.Context(), belay.LockRequest{
		Execution: got[0].ID, Owner: "me", TTL: belay.Duration(10 * time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	line := "ä€𝄞 <\"\x1b[31m&\x00\n" // 20 bytes, some of which take six in JSON
	text := strings.Repeat(line, size/len(line))
	for n := 0; n*belay.MaxChunk < len(text); n++ {
		data := text[n*belay.MaxChunk : min(len(text), (n+1)*belay.MaxChunk)] // a chunk may end inside a character
		if err := r.engine.Append(t.Context(), belay.Chunk{Lease: l.Lease, Name: agent.OutputLog, N: int64(n),
			Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	want := text[len(text)-1<<20:]
	for want[0]&0xc0 == 0x80 {
		want = want[1:]
	}
	want = strings.ReplaceAll(want, "\x00", "\uFFFD")
	url := fmt.Sprintf("%s/jobs/%s", r.url, got[0].ID)
	_, body, err := try(t.Context(), http1(t), http.MethodGet, url, "")
	var job struct{ Output string }
	if jerr := json.Unmarshal([]byte(body), &job); err != nil || jerr != nil || job.Output != want {
		t.Fatalf("%v, %v: %d bytes of output, want %d", err, jerr, len(job.Output), len(want))
	}
	whole := sha256.Sum256([]byte(body))
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak, stop := before.HeapInuse, make(chan struct{})
	var watch, all sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapInuse)
			case <-stop:
				return
			}
		}
	})
	for range readers {
		all.Go(func() {
			resp, err := c.Get(url)
			for err == nil && resp.StatusCode == http.StatusServiceUnavailable { // too many readers at this moment
				_ = resp.Body.Close()
				resp, err = c.Get(url)
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			sum := sha256.New()
			if _, err := io.Copy(sum, resp.Body); err != nil || !bytes.Equal(sum.Sum(nil), whole[:]) {
				t.Errorf("%d, %v: the output is not complete", resp.StatusCode, err)
			}
		})
	}
	all.Wait()
	close(stop)
	watch.Wait()
	used := peak - before.HeapInuse
	t.Logf("%d readers took %d MiB", readers, used>>20)
	if used > most {
		t.Errorf("%d readers took %d MiB, more than %d", readers, used>>20, most>>20)
	}
}
