package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// order is an order that a client submitted and whose end the client received.
type order struct {
	id belay.ExecutionID
	// via, at and by are names of versions: via is the version of the server that got the submission,
	// at the version of the server that the order's worker uses, and by the version of this worker. A
	// field is empty if its server or worker was replaced before the order ended.
	via, at, by string
}

// orders is a steady load of clients. Each client submits an order, sends the signal for which the
// order waits, and reads the order's result. Each of these requests goes to any of the servers.
type orders struct {
	*rollout
	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup

	mu    sync.Mutex
	given int
	ended []order
	spare int // the number of requests that failed because the server was being replaced
}

func (r *rollout) load(clients int, dice *rand.Rand) *orders {
	o := &orders{rollout: r}
	o.ctx, o.stop = context.WithCancel(r.t.Context())
	for range clients {
		own := rand.New(rand.NewPCG(dice.Uint64(), dice.Uint64()))
		o.all.Go(func() {
			for o.ctx.Err() == nil {
				if err := o.submitOne(own); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	return o
}

// submitOne submits an order and waits for its end.
func (o *orders) submitOne(dice *rand.Rand) error {
	o.mu.Lock()
	o.given++
	n := o.given
	o.mu.Unlock()
	w := dice.IntN(len(o.workers))
	via, at, by := o.servers[dice.IntN(len(o.servers))], o.servers[w], o.workers[w]
	was := order{via: via.version(), at: at.version(), by: by.version()}
	body := fmt.Sprintf(`{"workflow":"order","input":%d,"worker_labels":{"at":%q}}`, n, by.name)
	var x belay.Execution
	if err := o.ask(via, dice, &x, "POST", "/v1/executions", body, "Idempotency-Key",
		fmt.Sprint("order-", n)); err != nil {
		return err
	}
	path := "/v1/executions/" + x.ID.String()
	signal := fmt.Sprintf(`{"name":"more","payload":%d}`, 10*n)
	if err := o.ask(nil, dice, nil, "POST", path+"/signal", signal, "Idempotency-Key",
		fmt.Sprint("more-", n)); err != nil {
		return err
	}
	for !x.State.Terminal() {
		if err := o.ask(nil, dice, &x, "GET", path, "", "Prefer", "wait=20"); err != nil {
			return err
		}
	}
	if want := fmt.Sprint(17 * n); x.State != belay.Succeeded || string(x.Output) != want {
		return fmt.Errorf("%s ended %s with %s, want %s", x.ID, x.State, x.Output, want)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, order{id: x.ID, via: same(was.via, via), at: same(was.at, at), by: same(was.by, by)})
	return nil
}

// same returns the given name of a version if the process m still runs this version, and otherwise
// "".
func same(name string, m *process) string {
	if m.version() != name {
		return ""
	}
	return name
}

// ask repeats a request until a server answers it, each time at another server. A missing answer or
// a status 5xx is no error while that server is being replaced.
func (o *orders) ask(m *process, dice *rand.Rand, into any, method, path, body string, headers ...string) error {
	began := time.Now()
	for ; ; m = nil {
		if m == nil {
			m = o.servers[dice.IntN(len(o.servers))]
		}
		turn := m.turn.Load()
		status, text, err := send(o.t.Context(), method, "http://"+m.listen+path, body, headers...)
		switch {
		case err == nil && status < 300:
			if into == nil {
				return nil
			}
			return json.Unmarshal(text, into)
		case err == nil && status < 500, turn%2 == 0 && m.turn.Load() == turn, time.Since(began) > patience:
			return errors.Join(err, fmt.Errorf("%s %s at server %s, %s: %d %s", method, path, m.name, m.version(),
				status, text))
		}
		o.mu.Lock()
		o.spare++
		o.mu.Unlock()
	}
}

func send(ctx context.Context, method, url, body string, headers ...string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

// further waits until n more orders of a kind have ended.
func (o *orders) further(n int, what string, kind func(order) bool) {
	o.t.Helper()
	o.mu.Lock()
	from := len(o.ended)
	o.mu.Unlock()
	until(o.t, fmt.Sprintf("%d orders end %s", n, what), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		found := 0
		for _, x := range o.ended[from:] {
			if kind(x) {
				found++
			}
		}
		return found >= n || o.t.Failed()
	})
	if o.t.Failed() {
		o.t.FailNow()
	}
}

func anyOrder(order) bool { return true }

// over ends the load and returns all orders.
func (o *orders) over() []order {
	o.t.Helper()
	o.stop()
	o.all.Wait()
	if o.t.Failed() {
		o.t.FailNow()
	}
	o.t.Logf("%d orders; %d requests failed at a server that was being replaced", len(o.ended), o.spare)
	return o.ended
}
