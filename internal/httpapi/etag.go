package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// tagger holds an answer back until it is whole, to give it an ETag.
type tagger struct {
	http.ResponseWriter
	have   string // the ETags that the caller has
	status int
	body   *bytes.Buffer
}

// WriteHeader notes the status.
func (t *tagger) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
}

// Write adds to the body.
func (t *tagger) Write(b []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	return t.body.Write(b)
}

// finish sends the answer, or 304 to a caller that has it.
func (t *tagger) finish() {
	if t.status == http.StatusOK {
		tag := etagOf(t.body.Bytes())
		t.Header().Set("ETag", tag)
		if matches(t.have, tag) {
			t.Header().Del("Content-Length")
			t.ResponseWriter.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if t.status != 0 {
		t.ResponseWriter.WriteHeader(t.status)
		_, _ = t.ResponseWriter.Write(t.body.Bytes())
	}
}

// etagOf is the ETag of a body. It is weak, since the body may be sent compressed and not.
func etagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `W/"` + hex.EncodeToString(sum[:16]) + `"`
}

// matches reports whether the header If-None-Match names an ETag, weakly compared.
func matches(have, tag string) bool {
	tag = strings.TrimPrefix(tag, "W/")
	for one := range strings.SplitSeq(have, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
			return true
		}
	}
	return false
}

// describeTag adds the ETag to the documentation of a route.
func (a *api) describeTag(rt string) {
	op := a.documented(a.routes[rt])
	tag := headerOf[struct {
		ETag string `header:"ETag" doc:"Of this answer; with it in If-None-Match, the same answer is 304."`
	}](a)
	for _, status := range []string{"200", "304"} {
		for name, h := range tag {
			op.Responses[status].Headers[name] = h
		}
	}
}
