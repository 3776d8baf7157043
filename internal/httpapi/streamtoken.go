package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// A stream token lets a page in a browser open the stream of one execution with an EventSource,
// which sends no headers: the token is in the query. Its code (see sealed) covers the id of the
// execution.
const (
	tokenParameter = "access_token" // the name of RFC 6750, which proxies know as a secret
	tokenPrefix    = "bst_"
	tokenPurpose   = "belay stream token 1"
	tokenLife      = time.Minute
)

// present takes the stream token out of the query of a request, so that no handler or log sees the
// token. It does so only for a GET of a route that accepts stream tokens. Every other route refuses
// the parameter access_token as unknown.
func (in *admitted) present(r *http.Request, rt *route) (*http.Request, error) {
	if !rt.token || r.Method != http.MethodGet || !strings.Contains(r.URL.RawQuery, tokenParameter) {
		return r, nil
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(q[tokenParameter]) > 1 {
		return r, checkText(r, nil)
	}
	in.token = q.Get(tokenParameter)
	kind, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if in.token != "" && strings.EqualFold(kind, "Bearer") {
		return r, malformed("send the key or the stream token, not both")
	}
	q.Del(tokenParameter)
	bare := *r
	at := *r.URL
	at.RawQuery = q.Encode()
	bare.URL, bare.RequestURI = &at, at.RequestURI()
	return &bare, nil
}

// presented returns the admitted request of r if the request has a stream token, and otherwise nil.
func presented(r *http.Request) *admitted {
	if in, ok := r.Context().Value(admittedKey{}).(*admitted); ok && in.token != "" {
		return in
	}
	return nil
}

// badStreamToken returns the same error for every fault of a token, so that a caller learns nothing about other tokens
// and keys.
func badStreamToken() error {
	return unauthorized("the stream token is not valid for this stream, or its minute is over, or its key was "+
		"revoked; POST /v1/stream-tokens makes another", `, error="invalid_token"`)
}

// byToken finds the key of a request's stream token. The token must not have expired when the stream is opened. An open
// stream lasts until the key is revoked.
func (g *gate) byToken(r *http.Request, in *admitted) (caller, error) {
	t, ok := parseSealed(tokenPrefix, in.token)
	id, err := belay.ParseExecutionID(r.PathValue("id"))
	if !ok || err != nil {
		return caller{}, badStreamToken()
	}
	if !in.opened && !t.runs(g.limits.now(), tokenLife) {
		return caller{}, badStreamToken()
	}
	key, ok, err := g.keyFor(r.Context(), t, tokenPurpose, id[:])
	switch {
	case err != nil:
		return caller{}, err
	case !ok:
		return caller{}, badStreamToken()
	}
	in.opened = true
	return caller{key: key}, nil
}

type streamTokenReply struct {
	Body wire.StreamToken
}

func (a *api) streamTokens() {
	add(a, route{
		id: "createStreamToken", method: http.MethodPost, path: "/v1/stream-tokens", tag: "executions",
		summary: "Make a token with which a browser opens the stream of one execution",
		doc: "An EventSource sends no key. The token lets it open the events and the job log of this execution, with " +
			"GET, within a minute, as the query parameter access_token. It ends with the key that made it, and so " +
			"does the stream. After the minute the EventSource needs a new token when it connects again.",
		example: `{"execution": "ex_01m7w13wbkep9rfsn7shzr3mtm"}`,
		scopes:  []belay.Scope{belay.ScopeRead}, status: http.StatusCreated, body: true,
		errors: []int{http.StatusNotFound},
	}, a.streamToken, func(d *document, _ *huma.Operation) {
		d.doc().Components.SecuritySchemes["streamToken"] = &huma.SecurityScheme{
			Type: "apiKey", In: "query", Name: tokenParameter,
			Description: "A token of createStreamToken, for the streams of one execution, where a client such as a " +
				"browser's EventSource can send no header.",
		}
	})
}

func (a *api) streamToken(ctx context.Context, in *struct{ Body wire.StreamTokenRequest }) (*streamTokenReply, error) {
	if _, err := a.b.Execution(ctx, in.Body.Execution); err != nil {
		return nil, err
	}
	out := &streamTokenReply{wire.StreamToken{ExpiresInMS: tokenLife.Milliseconds()}}
	who := callerOf(ctx)
	if who.open {
		return out, nil
	}
	t, err := a.gate.seal(ctx, who.key.ID, tokenPurpose, in.Body.Execution[:], tokenLife)
	if err != nil {
		return nil, err
	}
	out.Body.AccessToken = t.text(tokenPrefix)
	return out, nil
}
