package test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// persistent sends requests to a server that is killed and restarted at the same address, and repeats each until the
// server has answered.
type persistent struct {
	t   *testing.T
	url string
}

func (p persistent) request(method, path, body, key string) answer {
	p.t.Helper()
	var last string
	var got answer
	if !poll(10*patience, func() bool {
		r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
		if err != nil {
			p.t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		w, err := (&http.Client{Timeout: 90 * time.Second}).Do(r)
		if err != nil {
			last = err.Error()
			return false
		}
		defer w.Body.Close()
		raw, err := io.ReadAll(w.Body)
		last = fmt.Sprint(w.Status, " ", string(raw), err)
		if err != nil || w.StatusCode >= 500 || w.StatusCode == http.StatusTooManyRequests {
			return false
		}
		if w.StatusCode >= 400 {
			p.t.Errorf("%s %s: %s", method, path, last)
		}
		got = answer{status: w.StatusCode, header: w.Header, text: string(raw)}
		return json.Unmarshal(raw, &got.body) == nil
	}) {
		p.t.Errorf("%s %s: %s", method, path, last)
	}
	return got
}

// converses sends the prompts of one session, each after the end of the job before it.
func (p persistent) converses(session, prompts int) (last answer) {
	p.t.Helper()
	path := "/execute"
	for n := 1; n <= prompts && !p.t.Failed(); n++ {
		body := fmt.Sprintf(`{"prompt":"prompt %d of session %d"}`, n, session)
		id := p.request("POST", path, body, fmt.Sprintf("s%d-%d", session, n)).string("job_id")
		for !p.t.Failed() {
			last = p.request("GET", "/jobs/"+id+"?wait=20", "", "")
			if last.at("finished_at") != nil {
				break
			}
		}
		if want := fmt.Sprintf("done %d", n); last.string("status") != "completed" || last.string("result") != want {
			p.t.Errorf("session %d, prompt %d: %s", session, n, clip(last.text))
		}
		path = "/jobs/" + id + "/prompt"
	}
	return last
}

// Rule: conversations with the real Claude Code survive kills of the server and of the worker: no prompt is lost, no
// prompt reaches the conversation twice, no action is done twice, all prompts of a conversation are in order, and the
// disk has no more than the artifacts of the jobs. With -long there are twenty sessions of five prompts.
func TestConversationsSurviveKills(t *testing.T) {
	sessions, prompts := 3, 3
	if *long {
		sessions, prompts = 20, 5
	} else {
		t.Parallel()
	}
	p := newPlace(t)
	p.repository()
	m := newModel(t, func(d dialogue) move {
		mine := d.ofTest()
		if n := len(mine); len(d.calls) < n {
			return move{"", "Bash", map[string]any{"command": fmt.Sprintf("echo %d >> log.txt", n)}}
		}
		return move{text: fmt.Sprintf("done %d", len(mine))}
	})
	serve := func(listen string) agents {
		return p.serveClaude(m, "--listen", listen, "--agent-local=false", "--insecure-no-auth",
			"--agent-permissions", "all")
	}
	a := serve("127.0.0.1:0")
	address := strings.TrimPrefix(a.url, "http://")
	work := func(a agents) far {
		return a.startWorker("one", append([]string{
			"BELAY_AGENT_COMMAND=", "BELAY_AGENT_PRESET=claude", "BELAY_AGENT_ENV=" + m.names(),
			"BELAY_AGENT_PERMISSIONS=all", "BELAY_AGENT_MAX_CONCURRENCY=4",
			"PATH=" + claudePath(t) + ":" + os.Getenv("PATH"),
		}, m.env()...)...)
	}
	w := work(a)
	users := persistent{t, a.url}
	ends := make([]answer, sessions)
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() { ends[i] = users.converses(i, prompts) })
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	r := dice(t)
	kills := 0
	for running := true; running; {
		select {
		case <-over:
			running = false
		case <-time.After(between(r, 2*time.Second, 5*time.Second)):
			kills++
			if r.IntN(2) == 0 {
				a.server.signal(syscall.SIGKILL)
				a.server.wait(patience)
				a = serve(address)
			} else {
				w.worker.signal(syscall.SIGKILL)
				w.worker.wait(patience)
				w = work(a)
			}
		}
	}
	t.Logf("%d sessions of %d prompts, %d kills", sessions, prompts, kills)
	if kills == 0 {
		t.Error("nothing was killed")
	}
	inOrder(t, m, sessions, prompts)
	for i, end := range ends {
		patch := p.artifact(parse(t, end.string("job_id")), end.string("changes", "patch"))
		done := slices.DeleteFunc(strings.Split(patch, "\n"), func(s string) bool {
			return !strings.HasPrefix(s, "+") || strings.HasPrefix(s, "+++")
		})
		// a command that was interrupted before it took effect is not done
		if !slices.IsSorted(done) || len(slices.Compact(slices.Clone(done))) != len(done) || len(done) < prompts-kills {
			t.Errorf("session %d has done %q", i, done)
		}
	}
	w.stopWorker()
	a.stop()
	if size := sizeOf(t, p.data); size > int64(sessions*prompts)*(1<<20)+(16<<20) {
		t.Errorf("the data directory has %d MiB", size>>20)
	}
}

// ofTest returns the prompts of the test, without those with which an interrupted agent continues.
func (d dialogue) ofTest() []string {
	return slices.DeleteFunc(slices.Clone(d.prompts), func(s string) bool { return !strings.HasPrefix(s, "prompt ") })
}

// inOrder checks that the last dialogue of each session has all prompts once, in order.
func inOrder(t *testing.T, m *model, sessions, prompts int) {
	t.Helper()
	last := make(map[string][]string)
	for _, d := range m.talks() {
		mine := d.ofTest()
		if len(mine) > 0 {
			_, session, _ := strings.Cut(mine[0], " of ")
			last[session] = mine
		}
	}
	for i := range sessions {
		var want []string
		for n := 1; n <= prompts; n++ {
			want = append(want, fmt.Sprintf("prompt %d of session %d", n, i))
		}
		if got := last[fmt.Sprintf("session %d", i)]; !slices.Equal(got, want) {
			t.Errorf("session %d has the prompts %q", i, got)
		}
	}
}

// sizeOf returns the size of all files below a directory.
func sizeOf(t *testing.T, dir string) (size int64) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(e.Name(), "belay-") {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return size
}
