package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Rule: with agent.egress a job reaches what is listed, through the proxy, and nothing
// else of the network: neither another address nor the server that runs it.
func TestAJobReachesWhatIsListed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	serve := func(text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	listed, other := serve("listed"), serve("other")
	command, err := json.Marshal([]string{"sh", "-c", `for at in $1; do
	printf '%s:' "$at"; curl -s --noproxy '' -m 5 -o body -w '%{http_code}' "http://$at/v1/executions"; printf ':'; head -c 6 body; echo; rm -f body
	printf 'past the proxy:'; curl -s -m 2 --noproxy '*' "http://$at/" || echo refused
done`, "sh", "{{prompt}}"})
	if err != nil {
		t.Fatal(err)
	}
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + string(command), "BELAY_AGENT_EGRESS=" + listed})
	own := strings.TrimPrefix(a.url, "http://")
	got := a.wantEnd(a.ask(strings.Join([]string{listed, other, own}, " ")), "completed", 0.0).string("result")
	want := fmt.Sprintf("%s:200:listed\npast the proxy:refused\n%s:403:", listed, other)
	if !strings.HasPrefix(got, want) || strings.Count(got, "past the proxy:refused") != 3 || !strings.Contains(got, "\n"+own+":403:") {
		t.Errorf("the job reached:\n%s", got)
	}
	a.stop()
}
