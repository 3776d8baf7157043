package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// charger is an HTTP service that charges orders. It fails while it is down, and for some requests when it is up.
type charger struct {
	*httptest.Server
	mu       sync.Mutex
	down     bool
	calls    int
	charged  map[string]string // the receipt of each idempotency key
	receipts map[int]int       // how many receipts each order has
}

func servePayments(t *testing.T) *charger {
	t.Helper()
	s := &charger{down: true, charged: map[string]string{}, receipts: map[int]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *charger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.down || s.calls%7 == 0 {
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/balance" {
		fmt.Fprintf(w, `{"balance": %d}`, 10*len(s.receipts))
		return
	}
	var charge struct{ Order int }
	key := r.Header.Get("Idempotency-Key")
	if err := json.NewDecoder(r.Body).Decode(&charge); err != nil || key == "" || r.URL.Path != "/charges" {
		http.Error(w, "no order", http.StatusBadRequest)
		return
	}
	if s.charged[key] == "" {
		s.charged[key] = fmt.Sprintf("r-%d", charge.Order)
		s.receipts[charge.Order]++
	}
	fmt.Fprintf(w, `{"receipt": %q}`, s.charged[key])
}

func (s *charger) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Rule: while a service is down, its circuit breaker keeps the requests of a document back, and no attempt is spent;
// when the service works again, the document goes on, over a kill, and no order is charged twice.
func TestExampleDocumentFlakyService(t *testing.T) {
	t.Parallel()
	const orders = 30
	p := newPlace(t)
	s := servePayments(t)
	config := filepath.Join(p.cwd, "belay.yaml")
	text := fmt.Sprintf("http:\n  egress: [%q]\n", strings.TrimPrefix(s.URL, "http://"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() *started {
		cmd := p.command("run", exampleDocument(t, "flaky-service"), "--resume", "--input",
			fmt.Sprintf(`{"service": %q, "orders": %d}`, s.URL, orders))
		cmd.Env = append(cmd.Env, "BELAY_CONFIG="+config)
		return p.start(cmd)
	}
	x := run()
	x.until("the circuit breaker is open, so that its gate is shut", func() bool {
		return strings.Contains(p.belay("breakers", "get", "payments:charge").out, "shut")
	})
	before := s.called()
	if !x.after(2 * time.Second) {
		t.Fatal("the document has ended although its service is down\n", x.dump())
	}
	if n := s.called() - before; n > 4 {
		t.Errorf("the service was called %d times while its circuit breaker was open", n)
	}
	x.kill()
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	x = run()
	x.says("ex_")
	p.belay("breakers", "close", "payments:charge", "--reason", "the service works again").want(0)
	x.until("some orders are charged", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.receipts) > orders/3
	})
	x.kill()
	run().wait(patience).want(0).showing(fmt.Sprintf(`"receipts": %d`, orders), fmt.Sprintf(`"balance": %d`, 10*orders))
	s.mu.Lock()
	defer s.mu.Unlock()
	for order := 1; order <= orders; order++ {
		if s.receipts[order] != 1 {
			t.Errorf("order %d was charged %d times", order, s.receipts[order])
		}
	}
}

// Rule: when the agents of a document have used its budget, the document is paused, over a kill; with a larger budget
// it goes on, and asks no question again that was answered.
func TestExampleDocumentBudget(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	run := func() *started { // each answer costs 107 tokens
		cmd := p.command("run", exampleDocument(t, "budgeted-agent"), "--resume", "--budget", "300", "--input",
			`{"questions": ["one", "two", "three", "four", "five", "six"]}`)
		cmd.Env = append(cmd.Env, "BELAY_AGENT_COMMAND="+smallAgent(t, "--stream-json"))
		return p.start(cmd)
	}
	x := run()
	x.says("its budget is spent; it goes on after: belay budget ex_")
	x.kill()
	run().wait(patience).want(belay.CodeConflict.Exit()).saying("is paused", "budget")
	p.belay("budget", "@last", "--cost", "5000", "--reason", "the other half is worth it").want(0)
	got := run().wait(patience).want(0).showing(`"one"`, `"six"`, `"tokens": 642`)
	root := p.execution(idOf(t, got.err))
	if cost := root.CostTokens.String(); cost != "642" {
		t.Errorf("the answers cost %s tokens, want 642", cost)
	}
}

// Rule: two submissions of one content, at the same time and later, are one execution, also over a kill of the server.
func TestExampleDocumentContent(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.directory("store")
	args := append([]string{"--concurrency", "4"}, bare...)
	s, a := p.serve(args...)
	text, err := os.ReadFile(exampleDocument(t, "ingest"))
	if err != nil {
		t.Fatal(err)
	}
	records := make([]map[string]int, 40)
	for i := range records {
		records[i] = map[string]int{"id": i % 30}
	}
	input, err := json.Marshal(map[string]any{
		"document": string(text), "input": map[string]any{"store": filepath.Join(p.cwd, "store"), "records": records},
	})
	if err != nil {
		t.Fatal(err)
	}
	submit := func() *started {
		return p.start(p.command("--server", a.url, "submit", "document", "--idempotency", "content", "--input",
			string(input)))
	}
	one, two := submit(), submit()
	id := one.wait(patience).want(0).out
	if again := two.wait(patience).want(0).out; again != id {
		t.Errorf("two submissions of one content are %s and %s", id, again)
	}
	until(t, "some records are kept", func() bool {
		files, _ := filepath.Glob(filepath.Join(p.cwd, "store", "*.json"))
		return len(files) > 5
	})
	s.kill()
	_, a = p.serve(args...)
	p.belay("--server", a.url, "watch", strings.TrimSpace(id)).want(0).showing("succeeded")
	if again := submit().wait(patience).want(0).out; again != id {
		t.Errorf("the same content after the end is %s, not %s", again, id)
	}
	p.stored(30)
}
