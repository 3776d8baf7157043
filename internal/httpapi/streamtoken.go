package httpapi

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// A stream token lets a page in a browser open the stream of one execution with an EventSource,
// which sends no headers: the token is in the query. The store does not contain it. It consists of
// the id of the key that requested it, the time when it expires, and an authentication code (MAC)
// over this id, this time and the id of the execution. Servers compute this code from the stored
// hash of the key. So every server of the store can check the token, and the token is not valid
// after its key was revoked.
const (
	tokenParameter = "access_token" // the name of RFC 6750, which proxies know as a secret
	tokenPrefix    = "bst_"
	tokenLife      = time.Minute
	// tokenSkew is how far the clock of the server that made a token may be ahead of this server's
	// clock.
	tokenSkew = time.Minute
)

// streamToken has the parts of a token that a caller sent.
type streamToken struct {
	key   belay.KeyID
	until time.Time
	code  [32]byte
}

// tokenLength is the number of bytes that a token encodes.
const tokenLength = 16 + 8 + 32

// message is the text that the code of a token authenticates.
func (t *streamToken) message(id belay.ExecutionID) []byte {
	m := append([]byte("belay stream token 1\x00"), t.key[:]...)
	m = append(m, id[:]...)
	return binary.BigEndian.AppendUint64(m, uint64(t.until.UnixMilli()))
}

func (t *streamToken) String() string {
	b := binary.BigEndian.AppendUint64(append([]byte(nil), t.key[:]...), uint64(t.until.UnixMilli()))
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(append(b, t.code[:]...))
}

// parseToken decodes a token, and does not check whether the token is valid.
func parseToken(text string) (*streamToken, bool) {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(rest) != base64.RawURLEncoding.EncodedLen(tokenLength) {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) != tokenLength {
		return nil, false
	}
	t := &streamToken{until: time.UnixMilli(int64(binary.BigEndian.Uint64(b[16:24])))}
	copy(t.key[:], b)
	copy(t.code[:], b[24:])
	return t, true
}

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
	t, ok := parseToken(in.token)
	id, err := belay.ParseExecutionID(r.PathValue("id"))
	if !ok || err != nil {
		return caller{}, badStreamToken()
	}
	if left := t.until.Sub(g.limits.now()); !in.opened && (left <= 0 || left > tokenLife+tokenSkew) {
		return caller{}, badStreamToken()
	}
	key, code, err := g.keys.Seal(r.Context(), t.key, t.message(id))
	switch {
	case belay.CodeOf(err) == belay.CodeUnauthorized:
		return caller{}, badStreamToken()
	case err != nil:
		return caller{}, err
	case !hmac.Equal(code[:], t.code[:]), !key.RevokedAt.IsZero():
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
	t := &streamToken{key: who.key.ID, until: a.gate.limits.now().Add(tokenLife)}
	_, code, err := a.gate.keys.Seal(ctx, t.key, t.message(in.Body.Execution))
	if err != nil {
		return nil, err
	}
	t.code = code
	out.Body.AccessToken = t.String()
	return out, nil
}
