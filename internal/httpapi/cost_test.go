package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// A cost is added exactly, in whichever form of JSON a request writes it, and an answer has the
// digits themselves. A binary number has no room for the last two digits of this sum.
func TestCostsAreExact(t *testing.T) {
	s := serve(t, httpapi.Options{})
	l := s.locked("")
	for _, cost := range []string{"12", "0.25", "1.50", "25e-2", "1E2", "0.0001", "0.0", "0.10000", "922337203685000"} {
		s.want(http.StatusOK, nil, http.MethodPut, l.path+"/checkpoint", `{"data": 1, "cost_tokens": `+cost+`}`, l.lease...)
	}
	for cost, why := range map[string]string{
		"0.00001": "a cost has at most four decimals", "-0.5": "body.cost_tokens",
		"1e15": "a cost is at most 922337203685477.5807 tokens", `"1"`: "expected number",
	} {
		p := s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPut, l.path+"/checkpoint",
			`{"data": 1, "cost_tokens": `+cost+`}`, l.lease...)
		if text, err := json.Marshal(p); err != nil || !bytes.Contains(text, []byte(why)) {
			t.Errorf("%s: %s, %v; want %s", cost, text, err, why)
		}
	}
	var x struct {
		Cost json.RawMessage `json:"cost_tokens"`
	}
	s.want(http.StatusOK, &x, http.MethodGet, l.path, "")
	if string(x.Cost) != "922337203685114.1001" {
		t.Errorf("the cost is %s", x.Cost)
	}
}
