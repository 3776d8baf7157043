package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// tagger keeps an answer until it is complete, to compute its ETag.
type tagger struct {
	http.ResponseWriter
	have   string // the header If-None-Match: the ETags of answers that the caller has
	status int
	body   *bytes.Buffer
}

// WriteHeader records the status.
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

// finish sends the answer, or 304 if the caller has the same answer already.
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

// etagOf is the ETag of a body. It is weak because the same body may be sent with and without
// compression.
func etagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `W/"` + hex.EncodeToString(sum[:16]) + `"`
}

// matches reports whether the header If-None-Match names an ETag, by weak comparison.
func matches(have, tag string) bool {
	tag = strings.TrimPrefix(tag, "W/")
	for one := range strings.SplitSeq(have, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
			return true
		}
	}
	return false
}

// describeTag adds the ETag to the documentation of an operation.
func describeTag(d *document, op *huma.Operation) {
	tag := headerOf[struct {
		ETag string `header:"ETag" doc:"The tag of this answer. A request that has it in If-None-Match is answered with 304 as long as the answer is the same."`
	}](d)
	for _, status := range []string{"200", "304"} {
		for name, h := range tag {
			op.Responses[status].Headers[name] = h
		}
	}
}
