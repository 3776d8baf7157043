package httpapi_test

import (
	"net/http"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
)

// A server under too much load refuses a batch of submissions before it reads the body, and carries
// out every other batch.
func TestABatchOfSubmissionsIsRefusedByItsHead(t *testing.T) {
	var crowded atomic.Bool
	s := serve(t, httpapi.Options{Crowded: func() error {
		if !crowded.Load() {
			return nil
		}
		return &belay.Error{
			Code: belay.CodeRateLimited, Message: "the server receives more than it can write",
			RetryAfter: 2 * time.Second,
		}
	}})
	only := []string{wire.HeaderOnly, wire.OnlySubmits}
	submits := `{"ops": [{"submit": {"workflow": "w"}}]}`
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/batch", submits, only...)
	crowded.Store(true)
	for _, body := range []string{submits, `{"ops": [`} {
		s.refused(http.StatusTooManyRequests, belay.CodeRateLimited, http.MethodPost, "/v1/batch", body, only...)
	}
	if got := s.do(http.MethodPost, "/v1/batch", submits, only...).Header.Get("Retry-After"); got != "2" {
		t.Errorf("its Retry-After is %q", got)
	}
	s.want(http.StatusOK, nil, http.MethodPost, "/v1/batch", submits)
}

// If the header of a batch says that all its operations submit roots, and one operation does something else, the server
// refuses the whole batch. Otherwise a server under load would refuse a checkpoint as if it were new work.
func TestABatchHoldsOnlyWhatItSays(t *testing.T) {
	s := serve(t, httpapi.Options{})
	id := path.Base(s.submit(`{"workflow": "w"}`))
	for _, op := range []string{
		`{"signal": {"execution": "` + id + `", "name": "go"}}`,
		`{"submit": {"workflow": "w", "parent": {"worker": "wk_00000000000000000000000000", "execution": "` + id +
			`", "token": 1, "secret": "00"}, "parent_key": "c"}}`,
	} {
		s.refused(http.StatusUnprocessableEntity, belay.CodeInvalid, http.MethodPost, "/v1/batch",
			`{"ops": [{"submit": {"workflow": "w"}}, `+op+`]}`, wire.HeaderOnly, wire.OnlySubmits)
	}
}
