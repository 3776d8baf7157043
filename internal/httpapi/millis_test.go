package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// durationsOf lists the fields of T that are durations, by their names in JSON.
func durationsOf[T any]() []string {
	var names []string
	for f := range reflect.TypeFor[T]().Fields() {
		if f.Type == reflect.TypeFor[belay.Duration]() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// Each duration of a request is text or milliseconds, and answers have both. A request in which the text and the
// milliseconds of a duration differ is refused and changes nothing.
func TestDurationsAreTextAndMilliseconds(t *testing.T) {
	s := serve(t, httpapi.Options{})
	has := func(where string, v any, name string) {
		t.Helper()
		m, _ := v.(map[string]any)
		if m[name] != "1m30s" || m[name+"_ms"] != float64(90_000) {
			t.Errorf("%s: %s is %v and %s_ms is %v", where, name, m[name], name, m[name+"_ms"])
		}
	}
	bodies := func(name string) []string {
		return []string{
			fmt.Sprintf(`%q: "90s"`, name), fmt.Sprintf(`"%s_ms": 90000`, name),
			fmt.Sprintf(`%q: "1m30s", "%s_ms": 90000`, name, name), fmt.Sprintf(`%q: "90000.4ms", "%[1]s_ms": 90000`, name),
		}
	}
	wrong := func(name string) string { return fmt.Sprintf(`%q: "90s", "%s_ms": 90001`, name, name) }
	refused := func(method, path, body, name string) {
		t.Helper()
		p := s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, method, path, body)
		if !strings.Contains(p.Detail, name+" is 1m30s and "+name+"_ms is 90001, which differ") {
			t.Errorf("%s %s: %s", method, path, p.Detail)
		}
	}
	policy := durationsOf[belay.Policy]()
	if len(policy) < 9 {
		t.Fatalf("a policy has the durations %v", policy)
	}
	for _, name := range policy {
		for i, d := range bodies(name) {
			var x map[string]any
			s.want(http.StatusCreated, &x, "POST", "/v1/executions", `{"workflow": "w", `+d+`}`)
			if i < 3 {
				has("submitted with "+d, x["policy"], name)
			}
		}
		refused("POST", "/v1/executions", `{"workflow": "w", `+wrong(name)+`}`, name)
	}
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, "POST", "/v1/executions",
		`{"workflow": "w", "timeout_ms": -1}`)
	s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, "POST", "/v1/executions",
		`{"workflow": "w", "timeout_ms": "90s"}`)
	s.want(http.StatusCreated, nil, "POST", "/v1/executions", `{"workflow": "w", "timeout": "90s"}`, "Idempotency-Key", "k")
	s.want(http.StatusOK, nil, "POST", "/v1/executions", `{"workflow": "w", "timeout_ms": 90000}`, "Idempotency-Key", "k")

	const hire = `{"name": "a", "workflows": [{"workflow": "claimed"}], "capacity": 1, %s}`
	session := ""
	for _, d := range bodies("ttl")[:3] {
		var x map[string]any
		session = s.want(http.StatusCreated, &x, "POST", "/v1/workers", fmt.Sprintf(hire, d)).Header.Get("Location")
		has("opened with "+d, x, "ttl")
	}
	s.want(http.StatusCreated, nil, "POST", "/v1/workers", fmt.Sprintf(hire, `"heartbeat_ms": 5000`))
	refused("POST", "/v1/workers", fmt.Sprintf(hire, wrong("ttl")), "ttl")
	refused("POST", "/v1/workers", fmt.Sprintf(hire, wrong("heartbeat")), "heartbeat")
	var workers struct {
		Workers []map[string]any `json:"workers"`
	}
	s.want(http.StatusOK, &workers, "GET", "/v1/workers", "")
	if len(workers.Workers) != 4 {
		t.Fatalf("%d workers, want 4: a refused request opened a session", len(workers.Workers))
	}
	has("listed", workers.Workers[len(workers.Workers)-1], "ttl")
	s.want(http.StatusCreated, nil, "POST", "/v1/executions", `{"workflow": "claimed", "timeout_ms": 90000}`)
	var claim struct {
		Assignments []map[string]any `json:"assignments"`
	}
	s.want(http.StatusOK, &claim, "POST", session+"/claim", `{"number": 1, "slots": 1, "wait_ms": 10000}`)
	has("claimed", claim.Assignments[0]["policy"], "timeout")

	for _, d := range bodies("ttl") {
		path := s.submit(`{"workflow": "w", "dispatch": "external", "on_lost": "requeue"}`)
		refused("POST", path+"/lock", `{"owner": "me", `+wrong("ttl")+`}`, "ttl")
		lock := path + "/lock/"
		var x struct {
			Lease map[string]any `json:"lease"`
		}
		s.want(http.StatusCreated, &x, "POST", path+"/lock", `{"owner": "me", `+d+`}`)
		if x.Lease["expires_in_ms"] != float64(90_000) {
			t.Errorf("locked with %s: %v", d, x.Lease)
		}
		lock += x.Lease["lock_id"].(string) + "/release"
		refused("POST", lock, `{"outcome": "suspend", `+wrong("wait")+`}`, "wait")
		refused("POST", lock, `{"outcome": "fail", "error": {"class": "transient", "message": "no"}, `+
			wrong("retry_after")+`}`, "retry_after")
		s.want(http.StatusOK, nil, "POST", lock, `{"outcome": "suspend", "wait_ms": 90000}`)
		refused("POST", path+"/cancel", `{`+wrong("grace")+`}`, "grace")
		s.want(http.StatusOK, nil, "POST", path+"/cancel", `{"grace_ms": 90000}`)
	}
}

// A batch refuses the submissions in which the text and the milliseconds of a duration differ, and
// carries out its other submissions.
func TestABatchRefusesDurationsThatDiffer(t *testing.T) {
	s := serve(t, httpapi.Options{})
	var out struct {
		Results []map[string]json.RawMessage `json:"results"`
	}
	s.want(http.StatusOK, &out, "POST", "/v1/batch", `{"ops": [
		{"submit": {"workflow": "w", "timeout": "90s", "timeout_ms": 1}}, {"submit": {"workflow": "w", "timeout_ms": 90000}},
		{"submit": {"workflow": "w", "timeout": "90s", "timeout_ms": 2}}, {"submit": {"workflow": "w", "timeout_ms": -5}}]}`)
	for i, refused := range []bool{true, false, true, true} {
		if r := out.Results[i]; (r["error"] != nil) != refused || (r["submitted"] == nil) != refused {
			t.Errorf("operation %d: %s", i, r)
		}
	}
}
