package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// bad is a request that must be refused with one of these statuses.
type bad struct {
	what, method, path, body string
	header                   []string // names and values, one after the other
	want                     []int
}

// badInputs returns bad requests about an existing execution.
func badInputs(id belay.ExecutionID) []bad {
	x := "/v1/executions/" + id.String()
	nobody := "/v1/executions/" + newExecutionID().String()
	lease := []string{"Lease-Id", "ls_00000000000000000000000000000000000000000000000000000", "Lease-Token", "1"}
	return []bad{
		{"no JSON", "POST", "/v1/executions", `{"workflow": "play", `, nil, []int{400}},
		{"no workflow", "POST", "/v1/executions", `{"input": []}`, nil, []int{400, 422}},
		{"a field of another type", "POST", "/v1/executions", `{"workflow": 7}`, nil, []int{400, 422}},
		{"deep JSON", "POST", "/v1/executions", `{"workflow":"play","input":` + strings.Repeat("[",
			20_000) + strings.Repeat("]", 20_000) + `}`, nil, []int{400, 413, 422}},
		{"an input too large", "POST", "/v1/executions", `{"workflow":"play","input":"` + strings.Repeat("x",
			belay.MaxPayload) + `"}`, nil, []int{413}},
		{"a name too long", "POST", "/v1/executions", `{"workflow":"` + strings.Repeat("x", belay.MaxName+1) + `"}`,
			nil, []int{400, 413, 422}},
		{"a policy out of bounds", "POST", "/v1/executions", `{"workflow":"play","max_attempts":-1}`, nil,
			[]int{400, 422}},
		{"an execution that does not exist", "GET", nobody, "", nil, []int{404}},
		{"an invalid id", "GET", "/v1/executions/ex_..%2f..%2fetc", "", nil, []int{400, 404, 422}},
		{"a signal to an execution that does not exist", "POST", nobody + "/signal", `{"name":"go"}`, nil, []int{404}},
		{"a checkpoint without a lease", "PUT", x + "/checkpoint", `{"data": 1}`, nil, []int{400, 428}},
		{"a checkpoint under a forged lease", "PUT", x + "/checkpoint", `{"data": 1}`, lease,
			[]int{400, 409, 412, 422}},
		{"an unknown action", "POST", x + "/explode", `{}`, nil, []int{404, 405}},
		{"an unknown method", "PATCH", x, "", nil, []int{404, 405}},
	}
}

// vandalize sends bad requests until ctx ends. If a server does not answer a bad request because it
// is down, the request counts as refused.
func (w *world) vandalize(ctx context.Context, about func() belay.ExecutionID) {
	r := dice(w.seed, "vandal")
	for pause(ctx, between(r, 50*time.Millisecond, 300*time.Millisecond)) == nil {
		id := about()
		if id.IsZero() {
			continue
		}
		all := badInputs(id)
		w.vandal(ctx, r, all[r.IntN(len(all))])
	}
}

func (w *world) vandal(ctx context.Context, r *rand.Rand, b bad) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := w.servers[r.IntN(len(w.servers))]
	q, err := http.NewRequestWithContext(ctx, b.method, s.url()+b.path, strings.NewReader(b.body))
	if err != nil {
		w.t.Error(err)
		return
	}
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(b.header); i += 2 {
		q.Header.Set(b.header[i], b.header[i+1])
	}
	a, err := s.plain.Do(q)
	if err != nil {
		w.answered("by nobody", "")
		return
	}
	defer a.Body.Close()
	_, _ = io.Copy(io.Discard, a.Body)
	switch {
	case slices.Contains(b.want, a.StatusCode):
		w.answered(fmt.Sprint(a.StatusCode), "")
	case a.StatusCode == http.StatusServiceUnavailable, a.StatusCode == http.StatusTooManyRequests &&
		a.Header.Get("Retry-After") != "":
		w.answered(fmt.Sprint(a.StatusCode), "") // the server is too busy to read the request
	default:
		w.answered(fmt.Sprint(a.StatusCode), fmt.Sprintf("%s: %s, want %v", b.what, a.Status, b.want))
	}
}

// get makes a request for the test itself. The history does not record it.
func (s *server) get(ctx context.Context, path string) (int, []byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+path, nil)
	if err != nil {
		return 0, nil, err
	}
	a, err := s.plain.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	return a.StatusCode, body, err
}
