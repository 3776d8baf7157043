package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// bad is a request that must be refused.
type bad struct {
	name         string
	method, path string
	body         string
	header       [][2]string // in addition to Content-Type: application/json, or in its place
	status       int         // the status that the server must answer; 0 means any 4xx
	// size is the length of a body that is generated while it is sent.
	size int64
}

// good is a request that the server would carry out. The tests make bad requests from it by
// spoiling one part.
type good struct{ method, path, body string }

// target describes a server with an execution, a lock and a session. All good requests would
// succeed there, so if a bad request is refused, the cause is its spoiled part.
type target struct {
	requests []good
	schemas  func(method, path string) map[string]any // the schema of the route's body
	queries  []good
}

// corpus makes all bad requests, always the same in the same order.
func corpus(t target) []bad {
	var out []bad
	for _, g := range t.requests {
		out = append(out, badTexts(g)...)
		out = append(out, badTypes(g)...)
		out = append(out, badFields(g, t.schemas(g.method, g.path))...)
	}
	for _, g := range append(slices.Clone(t.requests), t.queries...) {
		out = append(out, badIDs(g)...)
		out = append(out, badMethods(g)...)
		out = append(out, badQueries(g)...)
		out = append(out, badHeaders(g)...)
	}
	out = append(out, badParameters(t)...)
	return append(out, badAddresses()...)
}

// badTexts are bodies that cannot be read.
func badTexts(g good) []bad {
	spoil := map[string]string{
		"empty array": `[]`, "a string": `"x"`, "a number": `1`, "true": `true`, "null": `null`, "open": `{`,
		"close": `}`, "single quotes": `{'a': 1}`,
		"bare word": `{a: 1}`, "trailing comma": `{"a": 1,}`, "comment": `{/* */}`, "NaN": `{"a": NaN}`,
		"infinity": `{"a": Infinity}`,
		"hex":      `{"a": 0x10}`, "leading zero": `{"a": 01}`, "plus": `{"a": +1}`, "dot": `{"a": 1.}`,
		"exponent": `{"a": 1e}`, "minus": `{"a": -}`,
		"two values": g.body + g.body, "garbage after": g.body + "x", "NUL after": g.body + "\x00",
		"bracket after": g.body + "]",
		"BOM":           "\ufeff" + g.body, "UTF-16": "\xff\xfe{\x00}\x00", "invalid UTF-8": `{"a": "` + "\xff" + `"}`,
		"overlong UTF-8": `{"a": "` + "\xc0\xaf" + `"}`,
		"surrogate":      `{"a": "` + "\xed\xa0\x80" + `"}`, "half a surrogate pair": `{"a": "\ud83d"}`,
		"NUL in a string": "{\"a\": \"\x00\"}", "escaped NUL": `{"a": "\u0000"}`,
		"escaped NUL in a name": `{"\u0000": 1}`, "newline in a string": "{\"a\": \"\n\"}", "bad escape": `{"a": "\x"}`,
		"short escape": `{"a": "\u12"}`,
		"half a word":  `{"a": tru}`, "half null": `{"a": nul}`, "deep arrays": strings.Repeat("[", 5000),
		"deep objects":   strings.Repeat(`{"a":`, 5000),
		"deep and whole": `{"a": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
		"a field twice":  `{"zz": 1, "zz": 2}`, "a field twice, escaped": `{"zz": 1, "z\u007a": 2}`,
		"a field twice, deep":    `{"zz": {"a": [{"b": 1, "b": 1}]}}`,
		"many fields, one twice": `{` + many(40) + `"k7": 1}`, "form": "a=1&b=2", "XML": "<a/>", "colon": `{"a" 1}`,
		"comma":         `{"a": 1 "b": 2}`,
		"unknown field": strings.Replace(g.body, "{", `{"zz": 1, `, 1), "wrong case": upper(g.body), "spaces": "   ",
	}
	var out []bad
	for _, name := range slices.Sorted(maps.Keys(spoil)) {
		if name == "wrong case" && hot(g) || spoil[name] == g.body || strings.TrimSpace(spoil[name]) == "{}" {
			continue // encoding/json ignores the case of a field's name
		}
		out = append(out, bad{name: name, method: g.method, path: g.path, body: spoil[name]})
	}
	for cut := 1; cut < len(g.body); cut += max(1, len(g.body)/12) {
		out = append(out, bad{name: fmt.Sprintf("cut at %d", cut), method: g.method, path: g.path, body: g.body[:cut]})
	}
	return out
}

func hot(g good) bool {
	return strings.HasSuffix(g.path, "/claim") || strings.HasSuffix(g.path, "/accept") ||
		strings.HasSuffix(g.path, "/heartbeat") || g.path == "/v1/batch"
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d": 1, `, i)
	}
	return b.String()
}

// upper writes the first field in upper case.
func upper(body string) string {
	name, rest, _ := strings.Cut(strings.TrimPrefix(body, `{"`), `"`)
	return `{"` + strings.ToUpper(name) + `"` + rest
}

// badTypes are bodies without the content type JSON, bodies with an encoding, and a body that is
// too large.
func badTypes(g good) []bad {
	var out []bad
	for _, kind := range []string{
		"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml",
		"application/cbor",
		"application/json; charset=latin1", "application/json; charset", "json", "application/", "/json",
		"application/json, text/plain",
		"text/json", "application/problem+json", "application/jsonx", "*/*",
	} {
		out = append(out, bad{name: "type " + kind, method: g.method, path: g.path, body: g.body,
			header: [][2]string{{"Content-Type", kind}}, status: 415})
	}
	for _, encoding := range []string{"gzip", "deflate", "br", "identity, gzip"} {
		out = append(out, bad{name: "encoding " + encoding, method: g.method, path: g.path, body: g.body,
			header: [][2]string{{"Content-Encoding", encoding}}, status: 415})
	}
	size := int64(2 << 20)
	if g.path == "/v1/batch" {
		size = 17 << 20
	}
	return append(out, bad{name: "too large", method: g.method, path: g.path, size: size, status: 413})
}

// badFields puts a wrong value into each field of a body, as the body's schema lists the fields.
func badFields(g good, schema map[string]any) []bad {
	var body map[string]any
	if err := json.Unmarshal([]byte(g.body), &body); err != nil {
		return nil
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	var out []bad
	put := func(field, what string, v any) {
		spoiled := maps.Clone(body)
		if v == nil {
			delete(spoiled, field)
		} else {
			spoiled[field] = v
		}
		text, err := json.Marshal(spoiled)
		if err != nil {
			panic(err)
		}
		out = append(out, bad{name: field + " " + what, method: g.method, path: g.path, body: string(text)})
	}
	for _, field := range slices.Sorted(maps.Keys(properties)) {
		p, _ := properties[field].(map[string]any)
		for what, v := range wrongValues(p) {
			put(field, what, v)
		}
		if slices.Contains(required, any(field)) && g.path != "/v1/batch" {
			put(field, "missing", nil)
		}
	}
	slices.SortFunc(out, func(a, b bad) int { return strings.Compare(a.name, b.name) })
	return out
}

// wrongValues are values that a schema does not allow.
func wrongValues(schema map[string]any) map[string]any {
	out := make(map[string]any)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	kind, _ := schema["type"].(string)
	if ref, ok := schema["$ref"]; ok && ref != nil {
		kind = "object"
	}
	if kind == "" {
		return nil // the schema allows any JSON
	}
	for what, v := range map[string]any{"string": "zz", "number": raw("7"), "fraction": raw("1.5"), "boolean": true,
		"array": []any{}, "object": map[string]any{"zz": 1}} {
		if what == kind || kind == "integer" && what == "number" || kind == "number" && what == "fraction" {
			continue
		}
		out["is "+what] = v
	}
	switch kind {
	case "integer":
		out["is huge"], out["is beyond"], out["is below"] = raw("1e400"), raw("9223372036854775808"),
			raw("-9223372036854775809")
		out["is long"] = raw(strings.Repeat("9", 4000))
		if least, ok := schema["minimum"]; ok && fmt.Sprint(least) == "0" {
			out["is negative"] = raw("-1")
		}
	case "number":
		out["is huge"], out["is beyond"], out["is below"] = raw("1e400"), raw("922337203685477.5808"), raw("-1e400")
		out["is long"], out["is negative"] = raw(strings.Repeat("9", 4000)), raw("-0.5")
		if schema["maximum"] == nil { // a cost, which is exact; the other numbers have a maximum
			out["is tiny"], out["has five decimals"] = raw("1e-400"), raw("0.12345")
		}
	case "string":
		if schema["enum"] != nil || schema["pattern"] != nil || schema["format"] != nil {
			out["is no such word"], out["is empty"], out["is long"] = "zz", "", strings.Repeat("z", 100_000)
		}
		if schema["maxLength"] != nil {
			out["is too long"] = strings.Repeat("z", 5000)
		}
	case "object":
		if schema["$ref"] == nil {
			out["has numbers"] = map[string]any{"a": 1}
		}
	case "array":
		out["has a text and a number"], out["has null and more"] = []any{"x", 1}, []any{map[string]any{"zz": 1}}
	}
	return out
}

// badIDs are paths with ids that the server has never assigned.
func badIDs(g good) []bad {
	parts := strings.Split(g.path, "/")
	var out []bad
	for i, part := range parts {
		prefix, _, isID := strings.Cut(part, "_")
		if !isID || len(prefix) > 3 {
			continue
		}
		for what, id := range map[string]string{
			"short": part[:len(part)-1], "long": part + "0", "bare": part[len(prefix)+1:], "other": "zz_" +
				part[len(prefix)+1:], "upper": strings.ToUpper(part),
			"letters": prefix + "_" + strings.Repeat("u", len(part)-len(prefix)-1), "word": "nonsense", "number": "1",
			"null":  "null",
			"space": part + "%20", "NUL": part[:len(part)-1] + "%00", "UTF-8": part[:len(part)-1] + "%ff",
			"slash": part + "%2f", "huge": strings.Repeat("a", 3000),
			"sql": "'%20or%201=1--", "traversal": "..%2f..%2fetc%2fpasswd", "star": "*", "overflow": prefix + "_" +
				strings.Repeat("z", len(part)-len(prefix)-1),
		} {
			path := strings.Join(append(append(slices.Clone(parts[:i]), id), parts[i+1:]...), "/")
			out = append(out, bad{name: "id " + what + " " + fmt.Sprint(i), method: g.method, path: path, body: g.body})
		}
	}
	slices.SortFunc(out, func(a, b bad) int { return strings.Compare(a.name, b.name) })
	return out
}

// badMethods are methods that an address does not accept.
func badMethods(g good) []bad {
	var out []bad
	for _, m := range []string{"PATCH", "OPTIONS", "TRACE", "PROPFIND", "LINK", "get", "X"} {
		out = append(out, bad{name: "method " + m, method: m, path: g.path, status: 405})
	}
	return out
}

// badQueries are queries with unknown parameters, or that are not well formed.
func badQueries(g good) []bad {
	var out []bad
	for _, q := range []string{"zz=1", "zz", "a%zz=1", "a;b=1", "limit=1&limit=2", "%00=1", "wait=1&zz=2", "after=%ff",
		"=1"} {
		out = append(out, bad{name: "query " + q, method: g.method, path: g.path + "?" + q, body: g.body, status: 400})
	}
	return out
}

// badHeaders are headers that are given twice, or that a browser sends for a page of another site.
func badHeaders(g good) []bad {
	var out []bad
	for _, h := range [][2]string{{"Authorization", "x"}, {"Idempotency-Key", "x"}, {"Lease-Id", "x"},
		{"Lease-Token", "1"}, {"If-None-Match", "x"}, {"Last-Event-ID", "1"}} {
		out = append(out, bad{
			name: h[0] + " twice", method: g.method, path: g.path, body: g.body, header: [][2]string{h, h}, status: 400,
		})
	}
	if g.method != "GET" {
		out = append(out,
			bad{
				name: "other site", method: g.method, path: g.path, body: g.body, header: [][2]string{
					{"Sec-Fetch-Site", "cross-site"},
				}, status: 403,
			},
			bad{
				name: "other origin", method: g.method, path: g.path, body: g.body, header: [][2]string{
					{"Origin", "https://evil.test"},
				}, status: 403,
			})
	}
	return append(out, bad{
		name: "other host", method: g.method, path: g.path, body: g.body, header: [][2]string{{"Host", "evil.test"}},
		status: 403,
	})
}

// badParameters are parameters whose values are wrong.
func badParameters(t target) []bad {
	var out []bad
	get := func(path string, queries ...string) {
		for _, q := range queries {
			out = append(out, bad{name: q, method: "GET", path: path + "?" + q, status: 400})
		}
	}
	numbers := func(name string, least bool) (list []string) {
		for _, v := range []string{"x", "-1", "1.5", "1e3", "9223372036854775808", "0x10", "%201", "1%20", "true",
			"null", strings.Repeat("9", 500)} {
			list = append(list, name+"="+v)
		}
		if least {
			list = append(list, name+"=0", name+"=1001")
		}
		return list
	}
	get("/v1/executions", numbers("limit", true)...)
	get("/v1/executions", "state=x", "state=PENDING", "state=pending,running", "state=1", "state=pending&state=x",
		"children=maybe", "children=2", "parent=x",
		"parent=wk_0000000000000000000000000z", "cursor=x", "cursor=ex_zz", "cursor="+strings.Repeat("a", 300),
		"cursor=%00", "label=x", "label==x", "label=a=1&label=a=2",
		"workflow="+strings.Repeat("w", 201), "queue="+strings.Repeat("q", 201), "key="+strings.Repeat("k", 201),
		strings.Repeat("label=a%3Db&", 40)+"zz=1")
	get("/v1/runs", append(numbers("limit", true), "execution=x", "execution=run_1", "run=1", "outcome=x",
		"outcome=RUNNING", "worker=x", "worker=ex_0000000000000000000000000z", "since=x", "until=1",
		"cursor="+strings.Repeat("1", 101), "workflow="+strings.Repeat("w", 201), "workflow=%00",
		"execution=ex_0000000000000000000000000z&limit=1")...)
	get("/v1/audit", append(numbers("limit", true), "kind=x", "kind=KEY", "since=x", "until=1", "actors=x",
		"actor="+strings.Repeat("a", 201), "action="+strings.Repeat("a", 201),
		"kind=gate&name="+strings.Repeat("a", 601), "cursor="+strings.Repeat("1", 1001))...)
	get("/v1/usage", append(numbers("limit", true), "by=x", "by=label:", "by=LABEL:a",
		"by=label:"+strings.Repeat("a", 201),
		"since=x", "until=1", "label=x", "label=a=1&label=a=2", "workflow="+strings.Repeat("w", 201))...)
	var execution string
	for _, g := range t.queries {
		if strings.HasSuffix(g.path, "/history") {
			execution = strings.TrimSuffix(g.path, "/history")
		}
	}
	get(execution+"/history", append(numbers("after", false), numbers("limit", true)...)...)
	get(execution+"/history", "wait=x", "wait=-1s", "wait=1y", "wait=-5", "wait=1s1", "data=maybe", "wait=%00")
	get(execution+"/events", append(numbers("after", false), "data=7")...)
	get(execution+"/signals", numbers("after", false)...)
	get(execution+"/logs/log", append(numbers("from", false), numbers("limit", false)...)...)
	for _, name := range []string{"a%00b", "a%ffb", "%00", strings.Repeat("l", 700)} {
		out = append(out, bad{name: "log " + name, method: "GET", path: execution + "/logs/" + name, status: 400})
	}
	for _, v := range []string{"x", "-1", "1.5", "9999999999999999999999", "99999999999999999999", "1 2"} {
		out = append(out, bad{name: "Last-Event-ID " + v, method: "GET", path: execution + "/events",
			header: [][2]string{{"Last-Event-ID", v}}, status: 400})
	}
	for _, v := range []string{"wait=x", "wait=-1", "wait=", "wait", "respond-async, wait=1y", "wait=0x10"} {
		out = append(out, bad{
			name: "Prefer " + v, method: "GET", path: execution, header: [][2]string{{"Prefer", v}}, status: 400,
		})
	}
	out = append(out,
		bad{name: "beyond", method: "GET", path: execution + "/events?after=100000", status: 410},
		bad{name: "beyond", method: "GET", path: execution + "/history?after=100000&wait=60", status: 410})
	get("/v1/gates", append(numbers("limit", true), "kind=x", "kind=QUEUE", "kind=queue,limit",
		"cursor="+strings.Repeat("c", 301), "cursor=%00")...)
	get("/v1/circuit-breakers", append(numbers("limit", true), "kind=queue", "cursor="+strings.Repeat("c", 301))...)
	letters := []string{
		"resolution=x", "resolution=OPEN", "resolution=open,fixed", "resolution=open&resolution=fixed", "reason=x",
		"class=x", "class=PERMANENT", "workflow=" + strings.Repeat("w", 201), "workflow=%00",
		"fingerprint=" + strings.Repeat("f", 201), "text=" + strings.Repeat("t", 201), "text=%ff", "since=x", "until=1",
	}
	get("/v1/dead-letter-groups", letters...)
	get("/v1/dead-letters", append(append(numbers("limit", true), "cursor="+strings.Repeat("c", 101)), letters...)...)
	out = append(out, bad{name: "cursor", method: "GET", path: "/v1/dead-letters?cursor=x", status: 422})
	out = append(out, badBulks()...)
	return append(append(out, badGates()...), badLeases(t)...)
}

// badBulks are bulks that the server must not start.
func badBulks() []bad {
	var out []bad
	for _, body := range []string{
		`{"action": "cancel"}`, `{"action": "cancel", "filter": {}}`,
		`{"action": "cancel", "filter": {"states": ["pending"]}}`,
		`{"action": "discard", "filter": {"since": "2001-01-01T00:00:00Z"}}`, `{"filter": {"workflow": "w"}}`,
		`{"action": "delete", "filter": {"workflow": "w"}}`, `{"action": "CANCEL", "filter": {"workflow": "w"}}`,
		`{"action": "", "all": true}`, `{"action": "cancel", "all": "yes"}`, `{"action": "cancel", "all": 1}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "input": 1}`,
		`{"action": "retry", "filter": {"workflow": "w"}, "input": 1}`,
		`{"action": "discard", "filter": {"workflow": "w"}, "input_patch": {"n": 1}}`,
		`{"action": "requeue", "filter": {"workflow": "w"}, "input": 1, "input_patch": {"n": 1}}`,
		`{"action": "cancel", "filter": {"workflow": "w", "zz": 1}}`, `{"action": "cancel", "filter": {"workflow": 1}}`,
		`{"action": "cancel", "filter": {"workflow": "w", "reason": "timeout"}}`,
		`{"action": "retry", "filter": {"workflow": "w", "fingerprint": "f"}}`,
		`{"action": "requeue", "filter": {"workflow": "w", "queue": "q"}}`,
		`{"action": "requeue", "filter": {"workflow": "w", "states": ["failed"]}}`,
		`{"action": "requeue", "filter": {"workflow": "w", "labels": {"a": "b"}}}`,
		`{"action": "cancel", "filter": {"states": ["gone"], "workflow": "w"}}`,
		`{"action": "cancel", "filter": {"workflow": "w", "labels": {"a": 1}}}`,
		`{"action": "requeue", "filter": {"workflow": "w", "class": "zz"}}`,
		`{"action": "requeue", "filter": {"workflow": "w", "reason": "zz"}}`,
		`{"action": "requeue", "filter": {"workflow": "w", "since": "2002-01-01T00:00:00Z", "until": ` +
			`"2001-01-01T00:00:00Z"}}`,
		`{"action": "requeue", "filter": {"workflow": "w", "since": "yesterday"}}`,
		`{"action": "requeue", "filter": {"workflow": "` + strings.Repeat("w", 201) + `"}}`,
		`{"action": "requeue", "filter": {"text": "\u0007"}}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "rate": -1}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "rate": 1001}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "rate": 1e400}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "canary": [0]}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "canary": [-1]}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "canary": [1.5]}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "canary": [1, 2, 3, 4, 5, 6]}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "max_failures": 1.1}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "max_failures": -0.1}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "notes": "` + strings.Repeat("n", 151) + `"}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "notes": "\u0007"}`,
		`{"action": "cancel", "filter": {"workflow": "w"}, "actor": "\u0007"}`,
	} {
		out = append(out, bad{name: "bulk", method: "POST", path: "/v1/bulk", body: body})
	}
	return out
}

// badGates are requests about gates that cannot exist, and changes that no gate allows.
func badGates() []bad {
	var out []bad
	for _, id := range []string{
		"x", "queue", "queue:", ":a", ":", "queues:a", "QUEUE:a", "%20queue:a", "execution:a", "api_key:a", "queue:%07",
		"queue:a%00", "queue:%ff", "queue:%0a", "queue:%7f", "queue:%c2%85", "queue:" + strings.Repeat("q", 201),
		"queue:" + strings.Repeat("%E2%82%AC", 67), "queue:a/b", "workflow:" + strings.Repeat("w", 5000),
	} {
		path := "/v1/gates/" + id
		out = append(out, bad{name: "gate", method: "GET", path: path},
			bad{name: "gate", method: "POST", path: path + "/pause", body: `{}`},
			bad{name: "gate", method: "POST", path: path + "/resume"},
			bad{name: "gate", method: "PUT", path: path + "/limit", body: `{"max": 1}`},
			bad{name: "gate", method: "DELETE", path: path + "/limit"})
	}
	for _, name := range []string{"%07", "a%00", "%ff", "%7f", "%c2%85", strings.Repeat("q", 201),
		strings.Repeat("%E2%82%AC", 67), "a/b"} {
		for _, path := range []string{"/v1/queues/" + name + "/pause", "/v1/workflows/" + name + "/resume"} {
			out = append(out, bad{name: "name", method: "POST", path: path})
		}
		out = append(out, bad{name: "target", method: "GET", path: "/v1/circuit-breakers/" + name})
	}
	for _, gates := range []string{
		`"concurrency": {"name": "", "max": 1}`, `"concurrency": {"max": 1}`, `"concurrency": {"name": "l"}`,
		`"concurrency": {"name": "l", "max": 0}`, `"concurrency": {"name": "l", "max": -1}`,
		`"concurrency": {"name": "l", "max": 10001}`, `"concurrency": {"name": "l", "max": 1e400}`,
		`"concurrency": {"name": "\u0007", "max": 1}`, `"concurrency": {"name": "l", "max": 1, "zz": 1}`,
		`"concurrency": {"name": "l", "max": 1, "when_full": "explode"}`, `"concurrency": []`,
		`"rate": {"name": "r", "max": 1}`, `"rate": {"name": "r", "max": 1, "per": "1s", "per_ms": 2000}`, `"rate": {"name": "r", "max": 1, "per": "0s"}`,
		`"rate": {"name": "r", "max": 1, "per": "-1s"}`, `"rate": {"name": "r", "max": 1, "per": "25h"}`,
		`"rate": {"name": "r", "max": 1000001, "per": "1s"}`, `"rate": {"name": "` + strings.Repeat("r", 201) +
			`", "max": 1, "per": "1s"}`, `"target": "\u0007"`, `"target": "` + strings.Repeat("t", 201) + `"`, `"target": 1`,
		`"requires": {"resource": "", "mode": "a"}`, `"requires": {"resource": "gpu"}`, `"requires": {"mode": "a"}`,
		`"requires": {"resource": "gpu", "mode": "\u001f"}`, `"requires": "gpu"`,
		`"requires": {"resource": "gpu", "mode": "` + strings.Repeat("m", 201) + `"}`, `"swap": "gpu"`,
	} {
		out = append(out, bad{
			name: "gates", method: "POST", path: "/v1/executions", body: `{"workflow": "w", ` + gates + `}`,
		})
	}
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "target:a/limit", `{"max": 1}`}, {"PUT", "rate:a/limit", `{"max": 1}`},
		{"PUT", "limit:a/rate", `{"max": 1, "per": "1s"}`}, {"PUT", "target:a/rate", `{"max": 1, "per": "1s"}`},
		{"PUT", "queue:a/breaker", `{"state": "open"}`}, {"PUT", "limit:a/breaker", `{"state": "closed"}`},
		{"DELETE", "target:a/limit", ""}, {"DELETE", "limit:a/rate", ""}, {"DELETE", "limit:a/resource", ""},
		{"PUT", "limit:a/resource", `{}`}, {"PUT", "resource:a/limit", `{"max": 1}`},
		{"PUT", "resource:a/resource", `{"min_residency": "-1s"}`}, {"PUT", "resource:a/resource", `{"max_wait": "25h"}`},
		{"PUT", "resource:a/resource", `{"min_residency": "2m"}`},
		{"PUT", "resource:a/resource", `{"swap": {"workflow": "w", "queue": "a\u001fb"}}`},
		{"PUT", "limit:a/limit", `{"max": 0}`}, {"PUT", "limit:a/limit", `{"max": -1}`},
		{"PUT", "limit:a/limit", `{"max": 10001}`}, {"PUT", "limit:a/limit", `{"max": 9223372036854775807}`},
		{"PUT", "rate:a/rate", `{"max": -1, "per": "1s"}`}, {"PUT", "rate:a/rate", `{"max": 1000001, "per": "1s"}`},
		{"PUT", "rate:a/rate", `{"max": 1, "per": "-1s"}`}, {"PUT", "rate:a/rate", `{"max": 1, "per": "0s"}`},
		{"PUT", "rate:a/rate", `{"max": 1, "per": "25h"}`}, {"PUT", "rate:a/rate", `{"max": 1, "per": "9999999h"}`},
		{"PUT", "target:a/breaker", `{"state": "half_open"}`}, {"PUT", "target:a/breaker", `{"state": ""}`},
		{"POST", "queue:a/pause", `{"until": "2001-01-01T00:00:00Z"}`},
		{"POST", "queue:a/pause", `{"until": "-0001-01-01T00:00:00Z"}`},
		{"POST", "queue:a/pause", `{"until": "9999-12-31T23:59:59-12:00"}`},
		{"POST", "queue:a/pause", `{"until": "0000-01-01T00:00:00Z"}`},
		{"POST", "queue:a/pause", `{"until": "tomorrow"}`}, {"POST", "queue:a/pause", `{"until": 1}`},
		{"POST", "queue:a/pause", `{"reason": "\u0007"}`}, {"POST", "queue:a/pause", `{"actor": "\u0007"}`},
		{"DELETE", "queue:a/limit?reason=%07", ""}, {"DELETE", "queue:a/limit?reason=" + strings.Repeat("r", 201), ""},
	} {
		out = append(out, bad{name: "change", method: c.method, path: "/v1/gates/" + c.path, body: c.body})
	}
	return out
}

// badLeases are writes of owners with a lease that is missing, malformed or stale.
func badLeases(t target) []bad {
	var out []bad
	long := [2]string{"Idempotency-Key", strings.Repeat("k", 201)}
	for _, g := range t.requests {
		owner := strings.HasSuffix(g.path, "/checkpoint") || strings.HasPrefix(g.path, "/v1/runs/")
		// a cordon needs no idempotency key: a repeat changes nothing
		keyed := !hot(g) && !strings.HasSuffix(g.path, "/cordon")
		if keyed && !slices.Contains([]string{"/v1/workers", "/v1/stream-tokens"}, g.path) {
			out = append(out, bad{
				name: "long key", method: g.method, path: g.path, body: g.body, header: [][2]string{long},
			})
		}
		if !owner {
			continue
		}
		out = append(out, bad{name: "no lease", method: g.method, path: g.path, body: g.body, status: 428})
		for _, id := range []string{"x", "ls_", "ls_" + strings.Repeat("0", 51), "ls_" + strings.Repeat("u", 52),
			"wk_" + strings.Repeat("0", 26), strings.Repeat("l", 5000)} {
			out = append(out, bad{name: "lease " + id, method: g.method, path: g.path, body: g.body,
				header: [][2]string{{"Lease-Id", id}, {"Lease-Token", "1"}}, status: 400})
		}
		lease := "ls_" + strings.Repeat("0", 51) + "1"
		for _, token := range []string{"x", "-1", "1.5", "99999999999999999999", "0x1", "9007199254740993"} {
			out = append(out, bad{name: "token " + token, method: g.method, path: g.path, body: g.body,
				header: [][2]string{{"Lease-Id", lease}, {"Lease-Token", token}}, status: 400})
		}
		out = append(out, bad{name: "stale lease", method: g.method, path: g.path, body: g.body, header: [][2]string{
			{"Lease-Id", lease}, {"Lease-Token", "1"},
		}})
	}
	return out
}

// strangers makes requests without the right key, for a server with keys: no key, a wrong key, or a
// key without the needed scope. secrets are keys of one scope each.
func strangers(t target, secrets map[belay.Scope]string) []bad {
	var out []bad
	for _, g := range append(slices.Clone(t.requests), t.queries...) {
		if g.path == "/healthz" {
			continue
		}
		for _, a := range []string{
			"", "Bearer", "Bearer ", "Bearer x", "Bearer bly_", "Bearer bly_" + strings.Repeat("0", 52),
			"Bearer " + strings.Repeat("b", 5000), "Basic eDp5", "Basic !",
			"Token bly_x", "bly_x", "Digest a=b", "Bearer bly_x, Bearer bly_y",
		} {
			out = append(out, bad{
				name: "as " + a, method: g.method, path: g.path, body: g.body,
				header: [][2]string{{"Authorization", a}}, status: 401,
			})
		}
		form := g.path
		for _, id := range regexp.MustCompile(`/(ex|wk|run|ls)_[0-9a-z]+`).FindAllString(g.path, -1) {
			form = strings.Replace(form, id, map[bool]string{
				true: "/{lock_id}", false: "/{id}",
			}[strings.HasPrefix(id, "/ls_")], 1)
		}
		form = regexp.MustCompile(`/gates/[a-z]+:a`).ReplaceAllString(form, "/gates/{id}")
		form = strings.NewReplacer("/logs/log", "/logs/{name}", "/queues/a", "/queues/{name}", "/workflows/a",
			"/workflows/{name}", "/circuit-breakers/a", "/circuit-breakers/{target}").Replace(form)
		need := scopes[g.method+" "+form]
		for _, scope := range slices.Sorted(maps.Keys(secrets)) {
			if !slices.Contains(need, scope) {
				out = append(out, bad{
					name: "with " + string(scope), method: g.method, path: g.path, body: g.body, header: [][2]string{
						{"Authorization", "Bearer " + secrets[scope]},
					}, status: 403,
				})
			}
		}
	}
	return out
}

// badAddresses are addresses without a route.
func badAddresses() []bad {
	var out []bad
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v2/executions", "/v1/executions/", "//v1/executions", "/v1//executions",
		"/v1/./executions", "/v1/../v1/executions", "/V1/executions",
		"/v1/executions.json", "/v1/execution", "/admin", "/debug/pprof/", "/.git/config", "/metrics/", "/healthz/",
		"/openapi.yaml", "/openapi", "/docs",
		"/v1/executions/%2e%2e/keys", "/" + strings.Repeat("a", 5000), "/v1/keys/", "/v1/batch/", "/favicon.ico",
		"/wp-login.php", "/v1/lock", "/schemas/Submit.json",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			out = append(out, bad{name: "nowhere", method: method, path: path, status: 404})
		}
	}
	return out
}
