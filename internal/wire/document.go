package wire

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// MaxApplyBody is the largest size of a request that applies a document, in bytes: the escapes of
// JSON may make a text up to six times as long.
const MaxApplyBody = 6*belay.MaxDocument + 64<<10

// ApplyDocument makes a text the newest version of a document. The header Idempotency-Key has the
// operation id, and If-Match and If-None-Match say which version must be the newest before.
type ApplyDocument struct {
	Text string `json:"text" minLength:"1" doc:"The document, in YAML or JSON; at most 256 KiB."`
	By
}

// ChangeDocument deprecates a version, or ends its deprecation.
type ChangeDocument struct{ By }

// DocumentDiff is the difference between two versions of a document.
type DocumentDiff struct {
	Name string `json:"name"`
	From int    `json:"from"`
	To   int    `json:"to"`
	Diff string `json:"diff" doc:"The difference in the unified format; empty if the texts are equal."`
}

// DocumentGraph is a drawing of the tasks of a document.
type DocumentGraph struct {
	Format string `json:"format" enum:"text,mermaid,svg"`
	Graph  string `json:"graph"`
}

// DocumentPath is the path of a stored document.
func DocumentPath(name string) string { return "/v1/workflows/" + url.PathEscape(name) }

// DocumentVersionPath is the path of a version of a stored document.
func DocumentVersionPath(name string, version int) string {
	return fmt.Sprintf("%s/versions/%d", DocumentPath(name), version)
}

// DocumentTag is the ETag of a stored document whose newest version has this number. The tag is
// strong, because a version never changes and its number is never used again.
func DocumentTag(version int) string { return `"` + strconv.Itoa(version) + `"` }

// ParseDocumentTag reads the one ETag of a header If-Match; 0 if the header is empty.
func ParseDocumentTag(text string) (version int, err error) {
	if text == "" {
		return 0, nil
	}
	bare, quoted := strings.CutPrefix(text, `"`)
	bare, closed := strings.CutSuffix(bare, `"`)
	version, err = strconv.Atoi(bare)
	if err != nil || !quoted || !closed || version < 1 || strconv.Itoa(version) != bare {
		return 0, &belay.Error{
			Code: belay.CodeMalformed, Message: `If-Match must be the ETag of one version, as in If-Match: "3"`,
		}
	}
	return version, nil
}
