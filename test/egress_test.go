package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Rule: with agent.egress a job reaches the listed addresses through the proxy and nothing else on
// the network: neither another address nor the server that runs the job.
func TestAJobReachesOnlyListedAddresses(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	serve := func(text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	listed, other := serve("listed"), serve("other")
	command, err := json.Marshal([]string{"sh", "-c", `for at in $1; do
	printf '%s:' "$at"; curl -s -m 5 -o body -w '%{http_code}' "http://$at/v1/executions"; printf ':'; head -c 6 body; echo; rm -f body
	printf 'past the proxy:'; curl -s -m 2 --noproxy '*' "http://$at/" || echo refused
done`, "sh", "{{prompt}}"})
	if err != nil {
		t.Fatal(err)
	}
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + string(command), "BELAY_AGENT_EGRESS=" + listed})
	own := strings.TrimPrefix(a.url, "http://")
	job := a.wantEnd(a.ask(strings.Join([]string{listed, other, own}, " ")), "completed", 0.0)
	got := job.string("result")
	want := fmt.Sprintf("%s:200:listed\npast the proxy:refused\n%s:403:", listed, other)
	if !strings.HasPrefix(got, want) || strings.Count(got, "past the proxy:refused") != 3 ||
		!strings.Contains(got, "\n"+own+":403:") {
		t.Errorf("the job reached:\n%s", got)
	}
	notes := fmt.Sprint(job.at("notes"))
	for _, want := range []string{"agent.egress refused " + other + ": it is not listed there",
		"agent.egress refused " + own + ": "} {
		if !strings.Contains(notes, want) {
			t.Errorf("the job's notes do not say %q: %s", want, notes)
		}
	}
	if strings.Contains(notes, listed) {
		t.Errorf("an allowed request is noted: %s", notes)
	}
	a.stop()
}

// Rule: a job's notes list in a few lines the requests that the proxy refused, and the job can put
// no control characters into these lines.
func TestRefusalsOfAJobAreNoted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	command, err := json.Marshal([]string{"sh", "-c", `
for i in 1 2 3; do curl -s -m 5 -o body "http://often.example/"; done
for i in $(seq 30); do curl -s -m 5 -o body "http://n$i.example/"; done
curl -s -m 5 -o body "http://$(printf 'x\342\200\256\033[31m').example/"
echo "$no_proxy"`, "sh", "{{prompt}}"})
	if err != nil {
		t.Fatal(err)
	}
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + string(command), "BELAY_AGENT_EGRESS=good.example"})
	job := a.wantEnd(a.ask("go"), "completed", 0.0)
	if got := strings.TrimSpace(job.string("result")); got != "localhost,127.0.0.1,::1,[::1]" {
		t.Errorf("direct: %q", got)
	}
	notes, _ := job.at("notes").([]any)
	if len(notes) != 11 || notes[0] != "agent.egress refused often.example:80, 3 times: it is not listed there" {
		t.Fatalf("%d notes: %q", len(notes), notes)
	}
	for _, note := range notes {
		if text := fmt.Sprint(note); len(text) > 400 || strings.ContainsFunc(text, func(r rune) bool {
			return r < ' ' || r > '~'
		}) {
			t.Errorf("a note: %q", text)
		}
	}
	a.stop()
}

// Rule: a worker's proxy does not connect a job to the worker's own server on the same machine,
// even if the list allows that address, because the job would have the worker's rights there.
func TestAJobOfAWorkerDoesNotReachItsServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve()
	key := strings.TrimSpace(p.belay("keys", "create", "--name", "worker", "--scope", "admin").want(0).out)
	file := p.path("worker.key")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	at := strings.TrimPrefix(a.url, "http://")
	w := p.start(p.command("worker", "--server", a.url, "--key-file", file, "--data", p.path("elsewhere"),
		"--agent-egress", at))
	w.says("takes work")
	r := p.belay("submit", "command", "--server", a.url, "--key-file", file, "--wait", "--", "sh", "-c",
		"curl -s -m 5 http://"+at+"/v1/executions")
	if !strings.Contains(r.out, "agent.egress refused "+at+": it is an address of Belay itself") {
		t.Errorf("the job reached its worker's server: %s", r)
	}
	w.signal(syscall.SIGTERM)
	w.wait(patience).want(0)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
}
