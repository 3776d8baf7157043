package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// Until the first key is made, a caller that is not trusted may use only the routes that need no
// scope. Once there are keys, the caller's key decides.
func TestStrangersNeedAKey(t *testing.T) {
	trusted := false
	s := serve(t, httpapi.Options{Stranger: func(*http.Request) error {
		if trusted {
			return nil
		}
		return &belay.Error{Code: belay.CodeForbidden, Message: "make a key with belay keys create"}
	}})
	for _, r := range [][3]string{
		{http.MethodPost, "/v1/executions", `{"workflow": "w"}`}, {http.MethodGet, "/v1/executions", ""},
		{http.MethodPost, "/v1/batch", `{"ops": []}`},
		{http.MethodPost, "/v1/keys", `{"name": "a", "scopes": ["admin"]}`}, {http.MethodPost, somewhere + "/cancel",
			"{}"}, {http.MethodGet, "/metrics", ""},
	} {
		if p := s.refused(http.StatusForbidden, belay.CodeForbidden, r[0], r[1], r[2]); !strings.Contains(p.Detail,
			"belay keys create") {
			t.Errorf("%s %s: it does not say what to do: %s", r[0], r[1], p.Detail)
		}
	}
	s.want(http.StatusOK, nil, http.MethodGet, "/healthz", "")
	s.want(http.StatusOK, nil, http.MethodGet, "/openapi.json", "")
	trusted = true
	s.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", `{"workflow": "w"}`)
	trusted = false
	s.withKey("ci", belay.ScopeRead).want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "")
	s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, http.MethodGet, "/v1/executions", "")
}

// If Demand is set and there is no key yet, a request is refused, and the refusal says why and what
// to do. With InsecureNoAuth every request is let in.
func TestKeysAreDemanded(t *testing.T) {
	const demand = "jobs run here: make a key with belay keys create"
	s := serve(t, httpapi.Options{Demand: demand})
	for _, h := range [][]string{nil, {"Authorization", "Bearer bly_guessed"}} {
		if p := s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, http.MethodGet, "/v1/executions", "",
			h...); p.Detail != demand {
			t.Errorf("it says %q", p.Detail)
		}
	}
	s.want(http.StatusOK, nil, http.MethodGet, "/readyz", "")
	s.withKey("ci", belay.ScopeRead).want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "")
	never := func(*http.Request) error { return &belay.Error{Code: belay.CodeForbidden, Message: "no"} }
	serve(t, httpapi.Options{
		Demand: demand, Stranger: never, InsecureNoAuth: true,
	}).want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "")
}
