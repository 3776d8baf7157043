package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// scopes lists the scopes of each route: a key needs one of them, and the scope admin is always
// enough. A route without scopes lets every caller in.
var scopes = map[string][]belay.Scope{
	"GET /healthz":      nil,
	"GET /readyz":       nil,
	"GET /openapi.json": nil,
	"GET /metrics":      {belay.ScopeRead},
	"POST /v1/batch":    {belay.ScopeSubmit, belay.ScopeWorker},
	"POST /v1/await":    {belay.ScopeRead},

	"POST /v1/stream-tokens": {belay.ScopeRead},

	"POST /v1/executions":                             {belay.ScopeSubmit},
	"GET /v1/executions":                              {belay.ScopeRead},
	"GET /v1/executions/events":                       {belay.ScopeRead},
	"GET /v1/executions/{id}":                         {belay.ScopeRead},
	"DELETE /v1/executions/{id}":                      {belay.ScopeOperate},
	"GET /v1/executions/{id}/events":                  {belay.ScopeRead},
	"GET /v1/executions/{id}/explain":                 {belay.ScopeRead},
	"GET /v1/executions/{id}/history":                 {belay.ScopeRead},
	"GET /v1/executions/{id}/logs/{name}":             {belay.ScopeRead, belay.ScopeWorker},
	"GET /v1/executions/{id}/token":                   {belay.ScopeRead},
	"GET /v1/executions/{id}/signals":                 {belay.ScopeRead, belay.ScopeWorker},
	"POST /v1/executions/{id}/signal":                 {belay.ScopeSubmit},
	"POST /v1/executions/{id}/cancel":                 {belay.ScopeOperate},
	"GET /v1/executions/{id}/tasks":                   {belay.ScopeRead},
	"POST /v1/executions/{id}/repair":                 {belay.ScopeOperate},
	"POST /v1/executions/{id}/fork":                   {belay.ScopeOperate},
	"POST /v1/executions/{id}/pause":                  {belay.ScopeOperate},
	"POST /v1/executions/{id}/preempt":                {belay.ScopeOperate},
	"POST /v1/executions/{id}/requeue":                {belay.ScopeOperate},
	"POST /v1/executions/{id}/resume":                 {belay.ScopeOperate},
	"POST /v1/executions/{id}/retry":                  {belay.ScopeOperate},
	"POST /v1/executions/{id}/lock/steal":             {belay.ScopeOperate},
	"POST /v1/executions/{id}/lock":                   {belay.ScopeWorker},
	"PUT /v1/executions/{id}/lock/{lock_id}":          {belay.ScopeWorker},
	"POST /v1/executions/{id}/lock/{lock_id}/release": {belay.ScopeWorker},
	"PUT /v1/executions/{id}/checkpoint":              {belay.ScopeWorker},
	"GET /v1/executions/{id}/checkpoints":             {belay.ScopeWorker},

	"GET /v1/schedules":                  {belay.ScopeRead},
	"PUT /v1/schedules/{name}":           {belay.ScopeOperate}, // and submit
	"GET /v1/schedules/{name}":           {belay.ScopeRead},
	"DELETE /v1/schedules/{name}":        {belay.ScopeOperate},
	"POST /v1/schedules/{name}/pause":    {belay.ScopeOperate},
	"POST /v1/schedules/{name}/resume":   {belay.ScopeOperate},
	"POST /v1/schedules/{name}/run":      {belay.ScopeOperate},
	"POST /v1/schedules/{name}/backfill": {belay.ScopeOperate},

	"POST /hooks/{name}":                              nil, // the signature stands in the place of a key
	"POST /v1/cloudevents":                            {belay.ScopeSubmit},
	"GET /v1/webhooks":                                {belay.ScopeRead},
	"PUT /v1/webhooks/{name}":                         {belay.ScopeOperate}, // and submit
	"GET /v1/webhooks/{name}":                         {belay.ScopeRead},
	"DELETE /v1/webhooks/{name}":                      {belay.ScopeOperate},
	"POST /v1/webhooks/{name}/pause":                  {belay.ScopeOperate},
	"POST /v1/webhooks/{name}/resume":                 {belay.ScopeOperate},
	"POST /v1/webhooks/{name}/deliveries":             {belay.ScopeOperate}, // and submit
	"GET /v1/webhooks/{name}/deliveries/{id}":         {belay.ScopeRead},
	"POST /v1/webhooks/{name}/deliveries/{id}/replay": {belay.ScopeOperate},

	"GET /v1/notification-targets":                {belay.ScopeRead},
	"PUT /v1/notification-targets/{name}":         {belay.ScopeOperate}, // and submit
	"GET /v1/notification-targets/{name}":         {belay.ScopeRead},
	"DELETE /v1/notification-targets/{name}":      {belay.ScopeOperate},
	"POST /v1/notification-targets/{name}/pause":  {belay.ScopeOperate},
	"POST /v1/notification-targets/{name}/resume": {belay.ScopeOperate},
	"POST /v1/notification-targets/{name}/test":   {belay.ScopeOperate},

	"GET /v1/runs":                  {belay.ScopeRead},
	"GET /v1/runs/{id}":             {belay.ScopeRead},
	"POST /v1/runs/{id}/checkpoint": {belay.ScopeWorker},
	"POST /v1/runs/{id}/complete":   {belay.ScopeWorker},
	"POST /v1/runs/{id}/fail":       {belay.ScopeWorker},
	"POST /v1/runs/{id}/heartbeat":  {belay.ScopeWorker},
	"POST /v1/runs/{id}/suspend":    {belay.ScopeWorker},
	"POST /v1/runs/{id}/target":     {belay.ScopeWorker},

	"GET /v1/workers":                 {belay.ScopeRead},
	"POST /v1/workers":                {belay.ScopeWorker},
	"DELETE /v1/workers/{id}":         {belay.ScopeWorker},
	"POST /v1/workers/{id}/accept":    {belay.ScopeWorker},
	"POST /v1/workers/{id}/mailbox":   {belay.ScopeWorker},
	"DELETE /v1/workers/{id}/mailbox": {belay.ScopeWorker},
	"POST /v1/workers/{id}/claim":     {belay.ScopeWorker},
	"POST /v1/workers/{id}/drain":     {belay.ScopeWorker, belay.ScopeOperate},
	"POST /v1/workers/{id}/cordon":    {belay.ScopeOperate},
	"POST /v1/workers/{id}/uncordon":  {belay.ScopeOperate},
	"POST /v1/workers/{id}/heartbeat": {belay.ScopeWorker},

	"GET /v1/workflows":                                      {belay.ScopeRead},
	"GET /v1/workflows/{name}":                               {belay.ScopeRead},
	"PUT /v1/workflows/{name}":                               {belay.ScopeOperate},
	"DELETE /v1/workflows/{name}":                            {belay.ScopeOperate},
	"GET /v1/workflows/{name}/diff":                          {belay.ScopeRead},
	"GET /v1/workflows/{name}/versions":                      {belay.ScopeRead},
	"GET /v1/workflows/{name}/versions/{version}":            {belay.ScopeRead},
	"GET /v1/workflows/{name}/versions/{version}/graph":      {belay.ScopeRead},
	"DELETE /v1/workflows/{name}/versions/{version}":         {belay.ScopeOperate},
	"POST /v1/workflows/{name}/versions/{version}/deprecate": {belay.ScopeOperate},
	"POST /v1/workflows/{name}/versions/{version}/restore":   {belay.ScopeOperate},

	"GET /v1/gates":                       {belay.ScopeRead},
	"GET /v1/gates/{id}":                  {belay.ScopeRead},
	"POST /v1/gates/{id}/pause":           {belay.ScopeOperate},
	"POST /v1/gates/{id}/resume":          {belay.ScopeOperate},
	"PUT /v1/gates/{id}/limit":            {belay.ScopeOperate},
	"DELETE /v1/gates/{id}/limit":         {belay.ScopeOperate},
	"PUT /v1/gates/{id}/rate":             {belay.ScopeOperate},
	"DELETE /v1/gates/{id}/rate":          {belay.ScopeOperate},
	"PUT /v1/gates/{id}/resource":         {belay.ScopeOperate},
	"DELETE /v1/gates/{id}/resource":      {belay.ScopeOperate},
	"PUT /v1/gates/{id}/breaker":          {belay.ScopeOperate},
	"POST /v1/queues/{name}/pause":        {belay.ScopeOperate},
	"POST /v1/queues/{name}/resume":       {belay.ScopeOperate},
	"POST /v1/workflows/{name}/pause":     {belay.ScopeOperate},
	"POST /v1/workflows/{name}/resume":    {belay.ScopeOperate},
	"GET /v1/dead-letters":                {belay.ScopeRead},
	"GET /v1/dead-letter-groups":          {belay.ScopeRead},
	"GET /v1/dead-letters/{id}":           {belay.ScopeRead},
	"POST /v1/dead-letters/{id}/requeue":  {belay.ScopeOperate},
	"POST /v1/dead-letters/{id}/discard":  {belay.ScopeOperate},
	"POST /v1/dead-letters/{id}/fix":      {belay.ScopeOperate},
	"POST /v1/dead-letters/{id}/note":     {belay.ScopeOperate},
	"POST /v1/bulk":                       {belay.ScopeOperate},
	"POST /v1/executions/{id}/budget":     {belay.ScopeOperate},
	"POST /v1/executions/{id}/quarantine": {belay.ScopeOperate},
	"GET /v1/circuit-breakers":            {belay.ScopeRead},
	"GET /v1/circuit-breakers/{target}":   {belay.ScopeRead},

	"GET /v1/audit":        {belay.ScopeAdmin},
	"GET /v1/usage":        {belay.ScopeRead},
	"GET /v1/keys":         {belay.ScopeAdmin},
	"POST /v1/keys":        {belay.ScopeAdmin},
	"DELETE /v1/keys/{id}": {belay.ScopeAdmin},
}

// fill puts ids of things that do not exist into a path.
func fill(path string) string {
	id := "ex_0000000000000000000000000z"
	switch {
	case strings.HasPrefix(path, "/v1/runs/"):
		id = "run_" + strings.Repeat("0", 38) + "1"
	case strings.HasPrefix(path, "/v1/workers/"):
		id = "wk_0000000000000000000000000z"
	case strings.HasPrefix(path, "/v1/keys/"):
		id = "key_0000000000000000000000000z"
	case strings.HasPrefix(path, "/v1/gates/"):
		id = "queue:default"
	case path == states:
		return path + "?after=x" // a request whose answer has an end
	}
	return strings.NewReplacer("{id}", id, "{name}", "log", "{target}", "x", "{lock_id}", "ls_"+strings.Repeat("0", 51)+
		"1").Replace(path)
}

// Each route lets in exactly the scopes of the table. The test tries each scope alone, no key, a
// revoked key, and a key that was never made.
func TestRoutesOpenToTheirScopes(t *testing.T) {
	s := serve(t, httpapi.Options{})
	all := []belay.Scope{belay.ScopeRead, belay.ScopeSubmit, belay.ScopeOperate, belay.ScopeWorker, belay.ScopeAdmin}
	keys := make(map[belay.Scope]*server)
	for _, scope := range all {
		keys[scope] = s.withKey("with "+string(scope), scope)
	}
	revoked := s.withKey("revoked", all...)
	list, err := s.b.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.b.RevokeKey(t.Context(), belay.Revocation{Key: list[len(list)-1].ID}); err != nil {
		t.Fatal(err)
	}
	bad := *s
	bad.key = "bly_" + strings.Repeat("0", 52)
	routes := documentOf(t, s).routes
	if len(routes) != len(scopes) {
		t.Errorf("%d routes in the document, %d in the table", len(routes), len(scopes))
	}
	for _, r := range routes {
		at := r.method + " " + r.path
		need, known := scopes[at]
		if !known {
			t.Errorf("%s is not in the table of scopes", at)
			continue
		}
		for _, scope := range all {
			open := len(need) == 0 || scope == belay.ScopeAdmin || slices.Contains(need, scope)
			a := keys[scope].do(r.method, fill(r.path), "")
			if got := a.StatusCode != http.StatusForbidden && a.StatusCode != http.StatusUnauthorized; got != open {
				t.Errorf("%s with scope %s: %d, want open: %v", at, scope, a.StatusCode, open)
			}
			if !open && !strings.Contains(string(a.body), string(need[0])) {
				t.Errorf("%s with scope %s does not name the missing scope: %s", at, scope, a.body)
			}
		}
		for who, c := range map[string]*server{"no key": s, "a revoked key": revoked, "a key that never was": &bad} {
			a := c.do(r.method, fill(r.path), "")
			switch {
			case r.path == "/hooks/{name}" && a.StatusCode == http.StatusNotFound: // the same answer for everyone
			case len(need) == 0 && a.StatusCode >= 400 && a.StatusCode != http.StatusServiceUnavailable:
				t.Errorf("%s with %s: %d, want it open", at, who, a.StatusCode)
			case len(need) > 0 && (a.StatusCode != http.StatusUnauthorized || a.Header.Get("WWW-Authenticate") == ""):
				t.Errorf("%s with %s: %d %q, want 401 and what is wanted", at, who, a.StatusCode,
					a.Header.Get("WWW-Authenticate"))
			}
		}
	}
}

// Each operation of a batch needs the scope of its own route.
func TestBatchNeedsEachScope(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const lease = `{"execution": "ex_0000000000000000000000000z", "token": 1, "lease_id": "ls_0000000000000000000000000000000000000000000000000001"}`
	const body = `{"ops": [{"submit": {"workflow": "w"}}, {"signal": {"execution": "ex_0000000000000000000000000z", "name": "x"}},
		{"submit": {"workflow": "w", "parent": ` + lease + `, "parent_key": "k"}}, {"save": {"lease": ` + lease +
		`, "kind": "step", "key": "k"}},
		{"settle": {"lease": ` + lease + `, "outcome": "succeeded"}}, {"append": {"lease": ` + lease +
		`, "name": "log", "n": 0, "data": ""}}]}`
	for scope, allowed := range map[belay.Scope][]bool{
		belay.ScopeSubmit: {true, true, false, false, false, false},
		belay.ScopeWorker: {false, false, true, true, true, true},
		belay.ScopeAdmin:  {true, true, true, true, true, true},
	} {
		var reply struct {
			Results []struct{ Error *problem }
		}
		s.withKey(string(scope), scope).want(http.StatusOK, &reply, http.MethodPost, "/v1/batch", body)
		for i, r := range reply.Results {
			if refused := r.Error != nil && r.Error.Code == belay.CodeForbidden; refused == allowed[i] {
				t.Errorf("operation %d with scope %s: %+v, want allowed: %v", i, scope, r.Error, allowed[i])
			}
		}
	}
}

// A submission with when_full replace cancels other executions, so its key needs the scope of a
// cancel, whether the submission is sent alone, in a batch or as a child. A refused submission
// cancels nothing.
func TestASubmissionThatReplacesNeedsTheScopeOfACancel(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const (
		lease   = `{"execution": "ex_0000000000000000000000000z", "token": 1, "lease_id": "ls_0000000000000000000000000000000000000000000000000001"}`
		replace = `{"workflow": "other", "queue": "other", "concurrency": {"name": "x", "max": 1, "when_full": "replace"}}`
		child   = `{"workflow": "other", "concurrency": {"name": "x", "max": 1, "when_full": "replace"}, "parent": ` + lease + `, "parent_key": "k"}`
	)
	victim := s.submit(`{"workflow": "w", "concurrency": {"name": "x", "max": 1}}`)
	for _, scopes := range [][]belay.Scope{
		{belay.ScopeSubmit}, {belay.ScopeSubmit, belay.ScopeRead, belay.ScopeWorker}, {belay.ScopeOperate},
	} {
		c := s.withKey("narrow", scopes...)
		c.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost, "/v1/executions", replace)
		if len(scopes) == 3 {
			c.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPost, "/v1/executions", child)
		}
		if !slices.Contains(scopes, belay.ScopeSubmit) {
			continue
		}
		var reply struct {
			Results []struct{ Error *problem }
		}
		c.want(http.StatusOK, &reply, http.MethodPost, "/v1/batch",
			`{"ops": [{"submit": `+replace+`}, {"submit": `+child+`}]}`)
		for i, r := range reply.Results {
			if r.Error == nil || r.Error.Code != belay.CodeForbidden {
				t.Errorf("%s: operation %d of a batch: %+v", scopes, i, r.Error)
			}
		}
	}
	reader := s.withKey("reader", belay.ScopeRead)
	state := func() belay.State {
		var x belay.Execution
		reader.want(http.StatusOK, &x, http.MethodGet, victim, "")
		return x.State
	}
	if got := state(); got != belay.Pending {
		t.Errorf("a refused submission left the other execution %s", got)
	}
	s.withKey("wide", belay.ScopeSubmit, belay.ScopeOperate).want(http.StatusCreated, nil, http.MethodPost,
		"/v1/executions", replace)
	s.withKey("waits", belay.ScopeSubmit).want(http.StatusCreated, nil, http.MethodPost, "/v1/executions",
		`{"workflow": "w", "concurrency": {"name": "x", "max": 1, "when_full": "wait"}}`)
	s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, http.MethodPost, "/v1/executions", replace)
	var x belay.Execution
	for x.State != belay.Cancelled { // the cancel follows the submission
		reader.want(http.StatusOK, &x, http.MethodGet, victim, "", "Prefer", "wait=10")
	}
}

// A key that may only submit cannot change the terms of a limit or a rate, neither while executions use it nor
// afterwards. The refusal names the terms and the command that changes them. An operator can change them.
func TestASubmitterCannotChangeTheTermsOfAGate(t *testing.T) {
	s := serve(t, httpapi.Options{})
	const body = `{"workflow": "w", "concurrency": {"name": "dock", "max": %d}, "rate": {"name": "mail", "max": %d, "per": "%s"}}`
	submitter, reader := s.withKey("submitter", belay.ScopeSubmit), s.withKey("reader", belay.ScopeRead)
	operator := s.withKey("operator", belay.ScopeOperate)
	var first belay.Execution
	submitter.want(http.StatusCreated, &first, http.MethodPost, "/v1/executions", fmt.Sprintf(body, 2, 10, "1m"))
	attack := func() {
		t.Helper()
		for _, a := range []struct {
			limit, max int
			per, says  string
		}{
			{1, 10, "1m", "allows 2, not 1; an operator can change it: belay limits set dock 1"},
			{10_000, 10, "1m", "allows 2, not 10000; an operator can change it: belay limits set dock 10000"},
			{2, 1, "1m", "allows 10 in 1m0s, not 1 in 1m0s; an operator can change it: belay rates set mail 1/1m0s"},
			{2, 1_000_000, "1ms", "not 1000000 in 1ms; an operator can change it: belay rates set mail 1000000/1ms"},
		} {
			text := fmt.Sprintf(body, a.limit, a.max, a.per)
			p := submitter.refused(http.StatusConflict, belay.CodeConflict, http.MethodPost, "/v1/executions", text)
			if !strings.Contains(p.Detail, a.says) {
				t.Errorf("refused with %q, want %q in it", p.Detail, a.says)
			}
			var reply struct {
				Results []struct{ Error *problem }
			}
			submitter.want(http.StatusOK, &reply, http.MethodPost, "/v1/batch", `{"ops": [{"submit": `+text+`}]}`)
			if e := reply.Results[0].Error; e == nil || e.Code != belay.CodeConflict {
				t.Errorf("in a batch it got %+v", e)
			}
		}
		for _, path := range []string{"limit:dock/limit", "rate:mail/rate"} {
			submitter.refused(http.StatusForbidden, belay.CodeForbidden, http.MethodPut, "/v1/gates/"+path,
				`{"max": 100, "per": "1s"}`)
		}
		var limit, rate belay.GateInfo
		reader.want(http.StatusOK, &limit, http.MethodGet, "/v1/gates/limit:dock", "")
		reader.want(http.StatusOK, &rate, http.MethodGet, "/v1/gates/rate:mail", "")
		if limit.Limit == nil || limit.Limit.Max != 2 || rate.Rate == nil || rate.Rate.Max != 10 {
			t.Errorf("the terms are %+v and %+v", limit.Limit, rate.Rate)
		}
	}
	attack()
	operator.want(http.StatusOK, nil, http.MethodPost, "/v1/executions/"+first.ID.String()+"/cancel", `{}`)
	attack() // no execution uses the gates any more
	operator.want(http.StatusOK, nil, http.MethodPut, "/v1/gates/limit:dock/limit", `{"max": 1}`)
	submitter.want(http.StatusCreated, nil, http.MethodPost, "/v1/executions", fmt.Sprintf(body, 10_000, 10, "1m"))
	submitter.refused(http.StatusConflict, belay.CodeConflict, http.MethodPost, "/v1/executions",
		`{"workflow": "w", "concurrency": {"name": "dock", "max": 10000, "when_full": "reject"}}`)
}

// A server lets every caller in until the first key is made. When the last key is revoked, it still
// refuses callers without a key.
func TestServerStaysClosed(t *testing.T) {
	s := serve(t, httpapi.Options{})
	s.want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "")
	admin := s.withKey("root", belay.ScopeAdmin)
	s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, http.MethodGet, "/v1/executions", "")
	list, err := s.b.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	admin.want(http.StatusNoContent, nil, http.MethodDelete, "/v1/keys/"+list[0].ID.String(), "")
	s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, http.MethodGet, "/v1/executions", "")
}

// With InsecureNoAuth no request needs a key, even if there are keys.
func TestInsecureNoAuthAsksNobody(t *testing.T) {
	s := serve(t, httpapi.Options{InsecureNoAuth: true})
	s.withKey("root", belay.ScopeAdmin)
	s.want(http.StatusOK, nil, http.MethodGet, "/v1/keys", "")
}

// The actor of an action is the name of the request's key, whatever the body says. If requests need
// no key, the actor is the name in the body.
func TestActorIsTheKey(t *testing.T) {
	s := serve(t, httpapi.Options{})
	path := s.submit(`{"workflow": "w"}`)
	s.want(http.StatusOK, nil, http.MethodPost, path+"/pause", `{"actor": "somebody", "reason": "r"}`)
	admin := s.withKey("root", belay.ScopeAdmin)
	admin.want(http.StatusOK, nil, http.MethodPost, path+"/cancel", `{"actor": "somebody else"}`)
	var h struct{ Events []belay.Event }
	admin.want(http.StatusOK, &h, http.MethodGet, path+"/history", "")
	var actors []string
	for _, e := range h.Events[1:] {
		actors = append(actors, e.Actor)
	}
	if want := []string{"somebody", "root"}; !slices.Equal(actors, want) {
		t.Errorf("actors %q, want %q", actors, want)
	}
}

// The actor of a signal is the name of the request's key, whatever the body says, by every route that delivers one. If
// requests need no key, the actor is the name in the body, which must be a name.
func TestActorsOfSignalsAreTheKeys(t *testing.T) {
	s := serve(t, httpapi.Options{})
	path := s.submit(`{"workflow": "w"}`)
	id := path[strings.LastIndex(path, "/")+1:]
	alone := func(who *server, name, actor string) *answer {
		return who.do(http.MethodPost, path+"/signal", fmt.Sprintf(`{"name": %q, "actor": %s}`, name, actor))
	}
	batch := func(who *server, name, actor string) *answer {
		return who.do(http.MethodPost, "/v1/batch", fmt.Sprintf(
			`{"ops": [{"signal": {"execution": %q, "name": %q, "actor": %s}}]}`, id, name, actor))
	}
	long, control := strconv.Quote(strings.Repeat("a", belay.MaxName+1)), `"a\u0007"`
	for _, actor := range []string{`7`, long, control} {
		if a := alone(s, "wrong", actor); a.StatusCode < 400 || a.StatusCode >= 500 {
			t.Errorf("the actor %.20s: %d: %s", actor, a.StatusCode, a.body)
		}
		if a := batch(s, "wrong", actor); !strings.Contains(string(a.body), `"code":`) {
			t.Errorf("the actor %.20s in a batch: %d: %s", actor, a.StatusCode, a.body)
		}
	}
	var wrong []string
	note := func(a *answer) {
		if a.StatusCode >= 300 || strings.Contains(string(a.body), `"code":`) {
			wrong = append(wrong, fmt.Sprintf("%d: %s", a.StatusCode, a.body))
		}
	}
	note(alone(s, "open", `"ann"`))
	note(batch(s, "open batch", `"ann"`))
	note(alone(s, "nobody", `""`))
	ci := s.withKey("ci", belay.ScopeSubmit, belay.ScopeRead)
	note(alone(ci, "forged", `"root"`))
	note(batch(ci, "forged batch", `"root"`))
	note(batch(ci, "long", long))
	note(alone(ci, "own", `""`))
	if len(wrong) > 0 {
		t.Errorf("refused: %q", wrong)
	}
	var h struct{ Events []belay.Event }
	ci.want(http.StatusOK, &h, http.MethodGet, path+"/history", "")
	var got []string
	for _, ev := range h.Events[1:] {
		got = append(got, ev.Name+" by "+ev.Actor)
	}
	want := []string{
		"open by ann", "open batch by ann", "nobody by ", "forged by ci", "forged batch by ci", "long by ci",
		"own by ci",
	}
	if !slices.Equal(got, want) {
		t.Errorf("signals %q, want %q", got, want)
	}
}

// A browser may read with a key as its password, but not write with it: a page of another site
// could make the browser send the password.
func TestBrowserReadsWithPassword(t *testing.T) {
	s := serve(t, httpapi.Options{})
	c := s.withKey("root", belay.ScopeAdmin)
	basic := &http.Request{Header: http.Header{}}
	basic.SetBasicAuth("anybody", c.key)
	auth := basic.Header.Get("Authorization")
	s.want(http.StatusOK, nil, http.MethodGet, "/v1/executions", "", "Authorization", auth)
	s.refused(http.StatusUnauthorized, belay.CodeUnauthorized, http.MethodPost, "/v1/executions", `{"workflow": "w"}`,
		"Authorization", auth)
}

// A secret that a request carries appears in no answer and not in the log.
func TestSecretsStayInside(t *testing.T) {
	s := serve(t, httpapi.Options{})
	admin := s.withKey("root", belay.ScopeAdmin)
	path := admin.submit(`{"workflow": "w", "dispatch": "external"}`)
	lock := admin.want(http.StatusCreated, nil, http.MethodPost, path+"/lock", `{"owner": "me"}`)
	id := lock.Header.Get("Lease-Id")
	stranger := *s
	stranger.key = "bly_" + strings.Repeat("7", 52)
	secrets := []string{admin.key, stranger.key, id, id[len(id)-26:]}
	var said []string
	for _, a := range []*answer{
		stranger.do(http.MethodGet, "/v1/executions", ""),
		admin.do(http.MethodPut, path+"/checkpoint", `{"data": 1}`, "Lease-Id", id, "Lease-Token", "99"),
		admin.do(http.MethodPut, path+"/checkpoint", `{"data": 1}`, "Lease-Id", id[:len(id)-1]+"!", "Lease-Token", "1"),
		admin.do(http.MethodPost, path+"/lock", `{"owner": "other"}`),
		admin.do(http.MethodPut, path+"/lock/"+id+"?x=1", ""),
		admin.do(http.MethodPost, path+"/lock/"+id+"/release", `{"outcome": "complete", "output": `),
		admin.do(http.MethodPost, "/v1/batch",
			`{"ops": [{"settle": {"lease": {"execution": "ex_0000000000000000000000000z", "token": 1, "lease_id": "`+id+
				`x"}}}]}`),
	} {
		if a.StatusCode < 400 {
			t.Errorf("%s %s: %d, want a refusal", a.Request.Method, a.Request.URL.Path, a.StatusCode)
		}
		said = append(said, string(a.body))
	}
	said = append(said, s.log.text.String())
	for _, text := range said {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("a secret appears: %s", text)
			}
		}
	}
}

// Revoking a key also ends the streams that were opened with it.
func TestStreamEndsWithItsKey(t *testing.T) {
	s := serve(t, httpapi.Options{Ping: time.Millisecond})
	reader := s.withKey("reader", belay.ScopeRead)
	o := own(t, s.b)
	watch, err := s.open(t.Context(), http.DefaultClient, o.path+"/events", "Authorization", "Bearer "+reader.key)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.body.Close()
	if err := watch.until(2); err != nil {
		t.Fatal(err)
	}
	keys, err := s.b.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.b.RevokeKey(t.Context(), belay.Revocation{Key: keys[0].ID}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, watch.in)
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on without its key")
	}
}
