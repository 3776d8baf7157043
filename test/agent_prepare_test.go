package test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// flaky is the server of a repository. It breaks the connection of its first requests.
type flaky struct {
	url string
	ca  string // the file that contains the server's certificate
	// fails is the number of further requests that must fail; asked counts all requests.
	fails, asked atomic.Int64
}

func (p *place) flaky() *flaky {
	p.t.Helper()
	f := new(flaky)
	bare := p.path("served/bare.git")
	p.git(p.root, "clone", "-q", "--bare", p.repository(), bare)
	p.git(bare, "update-server-info")
	files := http.FileServer(http.Dir(filepath.Dir(bare)))
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		if f.fails.Add(-1) >= 0 {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		files.ServeHTTP(w, r)
	}))
	p.t.Cleanup(s.Close)
	f.url, f.ca = s.URL+"/bare.git", p.path("ca.pem")
	if err := os.WriteFile(f.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o644); err != nil {
		p.t.Fatal(err)
	}
	return f
}

// Rule: a short failure of the network while a workspace is prepared does not end a job: the server
// retries the clone, and the job's log says so. Until the clone succeeds, the job has not started,
// and a client can cancel it.
func TestACloneIsRetriedAfterANetworkFailure(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := p.flaky()
	a := p.assisted([]string{"SSL_CERT_FILE=" + f.ca}, "--agent-repo", f.url)
	f.fails.Store(2)
	asked := time.Now()
	id := a.ask("cat notes.txt")
	until(t, "the clone has failed", func() bool { return f.asked.Load() > 0 })
	if got := a.job(id); got.string("status") == "running" && (got.string("phase") != "preparing" ||
		got.at("started_at") != nil) {
		t.Errorf("while the workspace is prepared: %s", got.text)
	}
	got := a.wantEnd(id, "completed", 0.0)
	started, err := time.Parse(time.RFC3339Nano, got.string("started_at"))
	if err != nil || started.Sub(asked) < time.Second || got.string("result") != "notes\n" {
		t.Errorf("asked at %s: %s, %v", asked, got.text, err)
	}
	if log := a.want(http.StatusOK, "GET", "/jobs/"+id+"/log", "").text; !strings.Contains(log,
		`"kind":"preparing","name":"fetching, attempt 2"`) {
		t.Errorf("the job's progress does not mention the second attempt: %s", log)
	}
	f.fails.Store(1 << 40)
	before := f.asked.Load()
	id = a.ask("never", `"ref":"another"`)
	until(t, "the clone has failed", func() bool { return f.asked.Load() > before })
	a.want(http.StatusAccepted, "DELETE", "/jobs/"+id, "")
	if got := a.wantEnd(id, "error", nil); !strings.HasPrefix(got.string("error"), "cancelled") ||
		got.at("started_at") != nil {
		t.Errorf("%s", got.text)
	}
	f.fails.Store(0)
	if got := a.wantEnd(a.ask("never", `"ref":"none-such"`), "error", nil); !strings.Contains(got.string("error"),
		"none-such") {
		t.Errorf("%s", got.text)
	}
	a.stop()
}
