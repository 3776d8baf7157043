package agentapi

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// Rule: Status returns one status for every state of an execution and for every kind of failure.
func TestStatusOfEveryState(t *testing.T) {
	failure := func(class belay.Class) *belay.Failure { return &belay.Failure{Class: class} }
	for _, c := range []struct {
		state belay.State
		err   *belay.Failure
		a     *agent.Answer
		want  string
	}{
		{belay.Pending, nil, nil, Queued}, {belay.Scheduled, nil, nil, Queued}, {belay.Waiting, nil, nil, Waiting},
		{belay.Paused, nil, nil, Queued},
		// the execution waits between two attempts
		{belay.Pending, failure(belay.ClassTransient), &agent.Answer{ExitCode: 1}, Queued},
		{belay.Running, nil, nil, Running},
		{belay.Succeeded, nil, &agent.Answer{}, Completed}, {belay.Succeeded, nil, nil, Completed},
		{belay.Failed, failure(belay.ClassTransient), &agent.Answer{ExitCode: 3}, Failed},
		{belay.Failed, failure(belay.ClassTransient), &agent.Answer{SaidFailed: true}, Failed},
		{belay.Failed, failure(belay.ClassTransient), &agent.Answer{ExitCode: 124, TimedOut: true}, Timeout},
		{belay.Failed, failure(belay.ClassPermanent), &agent.Answer{Denied: []string{"Bash"}}, Failed},
		{belay.Failed, failure(belay.ClassTimeout), nil, Timeout},
		{belay.Failed, failure(belay.ClassLost), nil, Errored},
		// the answer belongs to an earlier attempt
		{belay.Failed, failure(belay.ClassLost), &agent.Answer{ExitCode: 1}, Errored},
		{belay.Failed, failure(belay.ClassPermanent), nil, Errored},
		{belay.Failed, failure(belay.ClassTransient), &agent.Answer{}, Errored}, // no workspace could be made
		{belay.Failed, nil, nil, Errored},
		{belay.Cancelled, nil, &agent.Answer{ExitCode: 143}, Errored}, {belay.Cancelled, nil, nil, Errored},
	} {
		if got := Status(&belay.Execution{State: c.state, Error: c.err}, c.a); got != c.want {
			t.Errorf("%s, %+v, %+v: %s, want %s", c.state, c.err, c.a, got, c.want)
		}
	}
	// Status would return the status error for a state that it does not handle.
	for _, s := range append([]belay.State{belay.Succeeded}, unended...) {
		if Status(&belay.Execution{State: s}, nil) == Errored {
			t.Errorf("%s has no status", s)
		}
	}
}

// Rule: a field of a job is null while its value is unknown, and the agent's result appears only
// after the job has ended.
func TestJobShowsItsResultAfterItsEnd(t *testing.T) {
	at := time.Unix(1, 0)
	output, err := json.Marshal(&agent.Answer{Text: "done", ExitCode: 3, Isolation: "none"})
	if err != nil {
		t.Fatal(err)
	}
	x := belay.Execution{
		State: belay.Running, CreatedAt: at, StartedAt: at, Output: output,
		Input: json.RawMessage(`{"prompt":"p","metadata":{"a":1}}`),
	}
	runs := []startedRun{
		{Token: 1, At: at.Add(-time.Hour)}, {Token: 2, At: at.Add(time.Second), Phase: agent.Phase{Session: "s1"}},
		{Token: 4, At: at.Add(time.Minute)},
	}
	x.Token = 2
	j := jobOf(&x, "so far", runs[:2])
	if j.Phase != Working || !j.StartedAt.Equal(at.Add(time.Second)) || j.Session != "s1" {
		t.Errorf("while the agent works: %+v", j)
	}
	x.Token = 4
	if j := jobOf(&x, "so far", runs[:2]); j.Phase != Preparing || !j.StartedAt.Equal(at.Add(time.Second)) {
		t.Errorf("while the next run is prepared: %+v", j)
	}
	if j := jobOf(&x, "so far", runs); j.Phase != Working || !j.StartedAt.Equal(at.Add(time.Second)) {
		t.Errorf("while the next run works: %+v", j)
	}
	if j := jobOf(&x, "", runs[:1]); j.Phase != Preparing || j.StartedAt != nil {
		t.Errorf("while the first run of a new generation is prepared: %+v", j)
	}
	j = jobOf(&x, "so far", runs)
	if j.ExitCode != nil || j.Result != nil || j.Error != nil || j.FinishedAt != nil || j.StartedAt == nil ||
		string(j.Metadata) != `{"a":1}` {
		t.Errorf("while it runs: %+v", j)
	}
	x.State, x.FinishedAt, x.Error = belay.Failed, at, &belay.Failure{
		Class: belay.ClassTransient, Message: "exit code 3",
	}
	j = jobOf(&x, "all", runs)
	if j.ExitCode == nil || *j.ExitCode != 3 || j.Result == nil || *j.Result != "done" || j.Error == nil ||
		*j.Error != "exit code 3" || j.FinishedAt == nil {
		t.Errorf("after its end: %+v", j)
	}
	x.State, x.Error, x.Output = belay.Cancelled, nil, nil
	if j = jobOf(&x, "", nil); *j.Error != "cancelled" || j.ExitCode != nil {
		t.Errorf("cancelled before it ran: %+v", j)
	}
}

// Rule: the parameter wait is a number of seconds or a duration. A value above the maximum of the
// server is replaced by that maximum.
func TestWaitIsBounded(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "0": 0, "1.5": 1500 * time.Millisecond,
		"30s": 30 * time.Second, "9h": time.Minute, "99999999": time.Minute} {
		if got, err := waitOf(httptest.NewRequest("GET", "/jobs/x?wait="+text, nil)); err != nil || got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "-1s", "x", "NaN", "1e9", ".", "99999999999999999999"} {
		if _, err := waitOf(httptest.NewRequest("GET", "/jobs/x?wait="+text,
			nil)); belay.CodeOf(err) != belay.CodeMalformed {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Rule: every job has a timeout: the timeout in the request or, if the request has none, the
// timeout in the server's settings.
func TestPromptAlwaysHasATimeout(t *testing.T) {
	setup := &agent.Setup{Command: agent.Template{"a"}, Timeout: time.Minute, Repo: ""}
	number := func(f float64) *float64 { return &f }
	for _, c := range []struct {
		asked *float64
		want  time.Duration
	}{
		{nil, time.Minute}, {number(2.5), 2500 * time.Millisecond}, {number(1e-9), time.Millisecond},
		{number(maxTimeout.Seconds()), maxTimeout},
		{number(0), 0}, {number(-1), 0}, {number(maxTimeout.Seconds() + 1), 0}, {number(1e300), 0},
	} {
		p, err := (&Execute{Prompt: "x", TimeoutSeconds: c.asked}).prompt(setup)
		if (err != nil) != (c.want == 0) || err == nil && p.Timeout.D() != c.want {
			t.Errorf("%v: %s, %v", c.asked, p.Timeout.D(), err)
		}
	}
}

// Rule: two inputs that differ only in the timeout or in streaming are the same request.
func TestSameRequestIgnoresTimeoutAndStreaming(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"prompt":"x","timeout":"1m0s"}`, `{"timeout":"2m0s", "prompt":"x"}`, true},
		{`{"prompt":"x","chat":true,"stream":true}`, `{"prompt":"x","chat":true}`, true},
		{`{"prompt":"x"}`, `{"prompt":"y"}`, false}, {`{"prompt":"x"}`, `{"prompt":"x","chat":true}`, false},
		{`{"prompt":"x","metadata":{"a":1,"b":2}}`, `{"prompt":"x","metadata":{"b":2, "a":1}}`, true},
		{`{"prompt":"x","metadata":{"a":1}}`, `{"prompt":"x"}`, false},
		{`{"prompt":"x","metadata":{"a":1}}`, `{"prompt":"x","metadata":{"a":2}}`, false}, {`{}`, `7`, false},
	} {
		if got := same(json.RawMessage(c.a), json.RawMessage(c.b)); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
	if diff := cmp.Diff(AgentHealth{"ok", true, 2, 3, 2},
		healthOf(counts{active: 2, queued: 3, slots: 2})); diff != "" {
		t.Error(diff)
	}
}
