package httpapi_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

const golden = "testdata/openapi.json"

// The OpenAPI document of the server equals the golden file, from which clients are generated. So
// every change of the API also changes that file, and a reviewer sees the change.
func TestContractIsTheGoldenFile(t *testing.T) {
	s := serve(t, httpapi.Options{Extra: agentapi.New(nil, agentapi.Options{}).Routes(nil)})
	got := s.want(http.StatusOK, nil, http.MethodGet, "/openapi.json", "").body
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Errorf("the OpenAPI document has changed; if it is meant to, run with -update and read the difference:\n%s",
			diff)
	}
}

// The OpenAPI document is complete: every reference leads to a part of the document, every schema
// compiles, and every operation has a unique name, a summary, its parameters, its answers and its
// refusals.
func TestDocumentIsWhole(t *testing.T) {
	d := documentOf(t, serve(t, httpapi.Options{Extra: agentapi.New(nil, agentapi.Options{}).Routes(nil)}))
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				if _, found := d.resolve(v); !found {
					t.Errorf("%s refers to %s, which is not there", at, ref)
				}
			}
			for k, child := range v {
				walk(at+"/"+k, child)
			}
		case []any:
			for i, child := range v {
				walk(fmt.Sprint(at, "/", i), child)
			}
		}
	}
	walk("#", d.raw)
	schemas := d.raw["components"].(map[string]any)["schemas"].(map[string]any)
	for name := range schemas {
		if _, err := d.compiler.Compile("http://belay.test/openapi.json#/components/schemas/" + name); err != nil {
			t.Error(err)
		}
	}
	ids := make(map[string]string)
	for _, r := range d.routes {
		at := r.method + " " + r.path
		id, _ := r.operation["operationId"].(string)
		if !regexp.MustCompile(`^[a-z][A-Za-z]+$`).MatchString(id) || ids[id] != "" {
			t.Errorf("%s has the operationId %q, like %q", at, id, ids[id])
		}
		ids[id] = at
		if summary, _ := r.operation["summary"].(string); summary == "" {
			t.Errorf("%s has no summary", at)
		}
		documented(t, at, r)
		d.checkExample(at, r)
	}
}

// The OpenAPI document uses only keywords of JSON Schema and OpenAPI.
func TestDocumentHasNoWordsOfItsOwn(t *testing.T) {
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "patternDescription") {
		t.Error("the document has the word patternDescription, which is none of JSON Schema's")
	}
}

// The OpenAPI document has the URL of its server and the license of the API.
func TestDocumentNamesItsServerAndLicense(t *testing.T) {
	d := documentOf(t, serve(t, httpapi.Options{}))
	servers, _ := d.raw["servers"].([]any)
	license, _ := d.raw["info"].(map[string]any)["license"].(map[string]any)
	if len(servers) != 1 || servers[0].(map[string]any)["url"] != "/" || license["identifier"] != "Apache-2.0" {
		t.Errorf("servers %v, license %v", servers, license)
	}
}

// The patterns of ids in the OpenAPI document accept exactly the ids that the parsers of package
// belay accept. In particular, both refuse an id whose first digit is too large for the number of
// bytes in the id.
func TestPatternsOfIDsAreAsStrictAsTheirParsers(t *testing.T) {
	d := documentOf(t, serve(t, httpapi.Options{}))
	schemas := d.raw["components"].(map[string]any)["schemas"].(map[string]any)
	pattern := func(schema, field string) *regexp.Regexp {
		properties := schemas[schema].(map[string]any)["properties"].(map[string]any)
		return regexp.MustCompile(properties[field].(map[string]any)["pattern"].(string))
	}
	const more = "zzzzzzzzzzzzzzzzzzzzzzzzz" // 25 digits
	for _, c := range []struct {
		schema, field, prefix, rest string
		parse                       func(string) error
	}{
		{"Execution", "id", "ex_", more, func(s string) error {
			return new(belay.ExecutionID).UnmarshalText([]byte(s))
		}},
		{"Worker", "id", "wk_", more, func(s string) error { return new(belay.WorkerID).UnmarshalText([]byte(s)) }},
		{"Key", "id", "key_", more, func(s string) error { return new(belay.KeyID).UnmarshalText([]byte(s)) }},
		{"Run", "id", "run_", more + "zzzzzzzzzzzzz", func(s string) error {
			return new(belay.RunID).UnmarshalText([]byte(s))
		}},
		{"Lease", "lease_id", "ls_", more + "7" + more, func(s string) error {
			return new(wire.LeaseID).UnmarshalText([]byte(s))
		}},
		{"Lease", "lease_id", "ls_7" + more, more, func(s string) error {
			return new(wire.LeaseID).UnmarshalText([]byte(s))
		}},
	} {
		for _, first := range "0123456789abcdefghjkmnpqrstvwxyz" + "ilouAZ" {
			id := c.prefix + string(first) + c.rest
			if taken := c.parse(id) == nil; pattern(c.schema, c.field).MatchString(id) != taken {
				t.Errorf("%s: the parser takes it: %v; the pattern says otherwise", id, taken)
			}
		}
	}
}

func documented(t *testing.T, at string, r documentedRoute) {
	t.Helper()
	var named []string
	parameters, _ := r.operation["parameters"].([]any)
	for _, p := range parameters {
		if p := p.(map[string]any); p["in"] == "path" {
			named = append(named, "{"+p["name"].(string)+"}")
		}
	}
	want := regexp.MustCompile(`\{[^}]*\}`).FindAllString(r.path, -1)
	slices.Sort(named)
	slices.Sort(want)
	if diff := cmp.Diff(want, named); diff != "" {
		t.Errorf("%s: parameters of the path:\n%s", at, diff)
	}
	responses := r.operation["responses"].(map[string]any)
	need := []string{"400", "403", "405", "429", "500", "503"}
	if scopes, _ := r.operation["x-scopes"].([]any); len(scopes) > 0 {
		need = append(need, "401")
	}
	if _, body := r.operation["requestBody"]; body {
		need = append(need, "413", "415", "422")
	}
	if strings.Contains(r.path, "{") {
		need = append(need, "404")
	}
	for _, status := range need {
		if responses[status] == nil {
			t.Errorf("%s does not document %s", at, status)
		}
	}
}
