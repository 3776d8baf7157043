package test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// Rule: the agents of several servers on one database form one service: each server reports on all
// jobs, each server's health and queue depth count all jobs, and a client can join a chat through a
// server that did not start it.
func TestAgentsOfTwoServers(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	env := []string{"BELAY_STORE=" + url, "MAX_QUEUE_DEPTH=4"}
	one := newPlace(t).assisted(append(env, "MAX_CONCURRENCY=1"), bare...)
	two := newPlace(t).assisted(append(env, "MAX_CONCURRENCY=2"), bare...)
	free := one.path("free")
	var ids []string
	for range 3 {
		ids = append(ids, one.ask("until "+free))
	}
	for _, a := range []agents{one, two} {
		a.wantHealth(true, 3, 0, 3)
		if got := a.job(ids[2]); got.string("status") != "running" {
			t.Errorf("%s", got.text)
		}
	}
	ask := chatOf("one\nuntil "+free, `"stream":true`)
	first, second := one.stream(ask, "Idempotency-Key", "k"), two.stream(ask, "Idempotency-Key", "k")
	for _, a := range []agents{one, two} {
		a.wantHealth(true, 3, 1, 3)
		a.want(http.StatusTooManyRequests, "POST", "/execute", `{"prompt":"x"}`)
	}
	if err := os.WriteFile(free, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if a, b := contentOf(t, first), contentOf(t, second); a != "one\n" || b != a {
		t.Errorf("the two chats got %q and %q", a, b)
	}
	answers := make(map[string]bool)
	for _, a := range []agents{one, two} {
		got := a.want(http.StatusOK, "POST", completions, strings.Replace(ask, `,"stream":true`, "", 1),
			"Idempotency-Key", "k")
		answers[fmt.Sprint(got.string("id"), got.content())] = true
		a.wantHealth(false, 0, 0, 3)
	}
	if len(answers) != 1 {
		t.Errorf("the repeated requests got %v", answers)
	}
	one.stop()
	two.wantHealth(false, 0, 0, 2)
	two.stop()
}

// Rule: a server that leaves agents to workers has as many slots as all its workers together. While
// no worker is connected, the server reports that it is busy.
func TestAServerHasTheSlotsOfItsWorkers(t *testing.T) {
	t.Parallel()
	s := newPlace(t).assisted(nil, noLocalAgents...)
	s.wantHealth(true, 0, 0, 0)
	id := s.ask("hello")
	s.wantHealth(true, 0, 1, 0)
	f := s.startWorker("one", "BELAY_AGENT_MAX_CONCURRENCY=3")
	s.wantEnd(id, "completed", 0.0)
	s.wantHealth(false, 0, 0, 3)
	f.stopWorker()
	s.wantHealth(true, 0, 0, 0)
	s.stop()
}
