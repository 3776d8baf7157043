package test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/pgtest"
)

// Rule: agents of several servers on one database are one service: each server
// answers for all jobs, its health and its queue count those of all, and a chat that
// was asked at one is joined at another.
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
	ask := asking("one\nuntil "+free, `"stream":true`)
	first, second := one.stream(ask, "Idempotency-Key", "k"), two.stream(ask, "Idempotency-Key", "k")
	for _, a := range []agents{one, two} {
		a.wantHealth(true, 3, 1, 3)
		a.want(http.StatusTooManyRequests, "POST", "/execute", `{"prompt":"x"}`)
	}
	if err := os.WriteFile(free, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if a, b := contentOf(t, first), contentOf(t, second); a != "one\n" || b != a {
		t.Errorf("they were answered %q and %q", a, b)
	}
	answers := make(map[string]bool)
	for _, a := range []agents{one, two} {
		got := a.want(http.StatusOK, "POST", completions, strings.Replace(ask, `,"stream":true`, "", 1),
			"Idempotency-Key", "k")
		answers[fmt.Sprint(got.string("id"), got.content())] = true
		a.wantHealth(false, 0, 0, 3)
	}
	if len(answers) != 1 {
		t.Errorf("asked again they answer %v", answers)
	}
	one.stop()
	two.wantHealth(false, 0, 0, 2)
	two.stop()
}

// Rule: a server that leaves agents to workers has as many slots as they have, and is
// busy while there is none.
func TestTheSlotsOfWorkers(t *testing.T) {
	t.Parallel()
	s := newPlace(t).assisted(nil, left...)
	s.wantHealth(true, 0, 0, 0)
	id := s.ask("hello")
	s.wantHealth(true, 0, 1, 0)
	f := s.hire("one", "BELAY_AGENT_MAX_CONCURRENCY=3")
	s.wantEnd(id, "completed", 0.0)
	s.wantHealth(false, 0, 0, 3)
	f.leave()
	s.wantHealth(true, 0, 0, 0)
	s.stop()
}
