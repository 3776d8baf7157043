package test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// Rule: each delivery of a webhook starts one execution, however often its sender repeats it, while servers and the
// database are killed. A sender that repeats what got no answer loses nothing.
func TestEachDeliveryStartsOneExecutionWhileServersAreKilled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "", 1, hookEnv...)
		delivering(t, g, func(*rand.Rand) { g.members[0].kill() })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		srv := pgtest.Start(t, pgtest.Options{})
		g := newGroup(t, srv.Database(t), 3, hookEnv...)
		delivering(t, g, func(r *rand.Rand) {
			if r.IntN(3) > 0 {
				g.members[r.IntN(len(g.members))].kill()
				return
			}
			must(t, srv.Kill())
			must(t, srv.Restart())
		})
	})
}

// hookSecret signs the deliveries of all webhooks of the tests, and hookEnv gives it to servers.
const hookSecret = "a secret of the hooks"

var hookEnv = []string{"HOOK=" + hookSecret, `BELAY_SECRETS_ALLOW=["HOOK for webhook"]`}

// signedDelivery is a delivery as GitHub makes it.
func signedDelivery(t *testing.T, url, id, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Event", "push")
	req.Header.Set("X-GitHub-Delivery", id)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	return req
}

// sender repeats each delivery until it gets an answer.
type sender struct {
	t    *testing.T
	g    *group
	http http.Client

	mu    sync.Mutex
	got   map[string]belay.ExecutionID // the execution of each delivery
	took  []time.Duration              // of the answers, without those of killed servers
	again int                          // repetitions after no answer
}

// send makes a delivery, to another server each time until there is an answer.
func (s *sender) send(i int, id string) error {
	for began := time.Now(); ; <-time.After(20 * time.Millisecond) {
		at := s.g.members[i%len(s.g.members)].listen
		i++
		sent := time.Now()
		status, answer, err := s.post(signedDelivery(s.t, "http://"+at+"/hooks/h", id, fmt.Sprintf(`{"id":%q}`, id)))
		switch {
		case err == nil && status == http.StatusOK:
			return s.accepted(id, answer, time.Since(sent))
		case err == nil && status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests &&
			status != http.StatusInternalServerError:
			return fmt.Errorf("delivery %s: status %d", id, status)
		case time.Since(began) > patience:
			return fmt.Errorf("delivery %s: %d, %w", id, status, err)
		}
		s.mu.Lock()
		s.again++
		s.mu.Unlock()
	}
}

// accepted keeps the answer to a delivery. All answers to one delivery name the same execution.
func (s *sender) accepted(id string, answer deliveryAnswer, took time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, took)
	if old, had := s.got[id]; had && old != answer.Execution || answer.Execution.IsZero() {
		return fmt.Errorf("delivery %s started %s and then %s", id, old, answer.Execution)
	}
	s.got[id] = answer.Execution
	return nil
}

type deliveryAnswer struct {
	Outcome   belay.WebhookOutcome `json:"outcome"`
	Execution belay.ExecutionID    `json:"execution"`
}

func (s *sender) post(req *http.Request) (int, deliveryAnswer, error) {
	var a deliveryAnswer
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		err = json.NewDecoder(resp.Body).Decode(&a)
	}
	return resp.StatusCode, a, err
}

// delivering makes deliveries while something is killed again and again, and checks their executions.
func delivering(t *testing.T, g *group, kill func(*rand.Rand)) {
	t.Helper()
	r := dice(t)
	n, kills := 2000, 3
	if *long {
		n, kills = 10_000, 10
	}
	_, err := g.members[0].client.PutWebhook(t.Context(), belay.WebhookPut{Webhook: belay.Webhook{
		Name: "h", Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.HOOK }}"}, Rate: 10_000,
		Execution: belay.Submission{Workflow: "w"},
	}})
	must(t, err)
	s := &sender{t: t, g: g, got: make(map[string]belay.ExecutionID)}
	s.http.Transport = &http.Transport{MaxIdleConnsPerHost: 32}
	s.http.Timeout = patience
	different := n * 7 / 10
	order := r.Perm(n)
	done := make(chan struct{})
	go func() {
		defer close(done)
		each(t, n, func(i int) error { return s.send(i, fmt.Sprintf("d-%05d", order[i]%different)) })
	}()
	for k := range kills {
		until(t, "deliveries are made", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.took) > n*(k+1)/(kills+2)
		})
		kill(r)
	}
	<-done
	found := make(map[string]int)
	for f := (belay.Filter{Labels: map[string]string{belay.LabelWebhook: "h"}, Limit: 1000}); ; {
		var page belay.Page
		must(t, again(func() (err error) {
			page, err = g.members[0].client.Executions(t.Context(), f)
			return err
		}))
		for i := range page.Executions {
			x := &page.Executions[i]
			id := strings.TrimPrefix(x.Key, "webhook-delivery:h:")
			if found[id]++; found[id] > 1 || s.got[id] != x.ID {
				t.Errorf("the delivery %s has the execution %s, and the sender got %s", id, x.ID, s.got[id])
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	if len(found) != different || s.again == 0 {
		t.Errorf("%d of %d deliveries started an execution; %d were repeated after no answer", len(found), different,
			s.again)
	}
	slices.Sort(s.took)
	t.Logf("%d deliveries of %d ids, %d repetitions after no answer, %d kills; answers p50 %s, p99 %s, at most %s", n,
		different, s.again, kills, s.took[len(s.took)/2], s.took[len(s.took)*99/100], s.took[len(s.took)-1])
}
