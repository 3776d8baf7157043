package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// programs are the Go programs under examples/, built once.
var programs = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Dir(built.path)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir, "../examples/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the examples: %w\n%s", err, out)
	}
	return dir, nil
})

// example starts one of the programs under examples/, in the working directory of the test.
func (p *place) example(name string, args ...string) *started {
	p.t.Helper()
	binary(p.t) // makes the directory into which programs builds the examples
	dir, err := programs()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, name), args...)
	cmd.Dir, cmd.Env = p.cwd, p.environment()
	return p.start(cmd)
}

// kill ends the process at once, with SIGKILL.
func (x *started) kill() {
	x.t.Helper()
	x.signal(syscall.SIGKILL)
	x.wait(patience)
}

// shows waits until the process has written a text to its standard output.
func (x *started) shows(text string) {
	x.t.Helper()
	x.until("the process shows "+text, func() bool { return strings.Contains(x.out.String(), text) })
}

// lines returns the lines of a file in the working directory, or no lines if the file does not
// exist.
func (p *place) lines(name string) []string {
	text, _ := os.ReadFile(filepath.Join(p.cwd, name))
	return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(text)), " ", "_"))
}

// Rule: belay signal approves an order that waits for an approval, also after a kill of the order's
// program. No finished step is repeated.
func TestExampleApproval(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.example("approval", "17")
	x.shows("belay signal ")
	id := regexp.MustCompile(`ex_\w+`).FindString(x.out.String())
	x.kill()
	x = p.example("approval", "17")
	at := "unix:" + filepath.Join(p.cwd, "belay-data", "belay.sock")
	if !poll(patience, func() bool {
		return p.belay("signal", id, "approved", "--payload", `{"by": "ann"}`, "--server", at).code == 0
	}) {
		t.Fatal("the signal is not accepted\n" + x.dump())
	}
	// the program may print the question again if the kill came before the checkpoint
	got := x.wait(patience).want(0).out
	if want := "order 17: ship\norder 17: shipped, approved by ann\n"; !strings.HasSuffix(got, want) ||
		strings.Contains(got, "reserve") {
		t.Errorf("the program prints\n%s\nwant\n%s", got, want)
	}
}

// Rule: children that ended before the kill of the program do not run again.
func TestExampleFanOut(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	// At most eight children run at a time. At the kill, the results of eight children may not be
	// saved yet, and eight more children may have just ended.
	const parts, unsaved = 20, 8
	counted := func(x *started) int { return strings.Count(x.out.String(), " primes from ") }
	x := p.example("fan-out", "1000000")
	x.until("half is counted", func() bool { return counted(x) >= parts/2 })
	x.kill()
	first := counted(x)
	x = p.example("fan-out", "1000000")
	x.wait(patience).want(0).showing("78498 primes below 1000000\n")
	if n := counted(x); n > parts-(first-unsaved) {
		t.Errorf("%d parts were counted again, of which %d had been\n%s", n, first, x.dump())
	}
}

// Rule: a saga whose program is killed during the compensation completes the rest of the
// compensation. It repeats no booking, and no cancellation except for the one that was in progress
// at the kill.
func TestExampleSaga(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.example("saga", "spring").wait(patience).want(0).showing("booked: flight, hotel, car")
	x := p.example("saga", "may-nocar")
	x.until("the saga cancels the hotel", func() bool {
		return slices.Contains(p.lines("bookings.txt"), "may-nocar:_cancel_hotel")
	})
	x.kill()
	p.example("saga", "may-nocar").wait(patience).want(0).showing("there is no car")
	want := []string{
		"spring:_book_flight", "spring:_book_hotel", "spring:_book_car", "may-nocar:_book_flight",
		"may-nocar:_book_hotel", "may-nocar:_cancel_hotel",
		"may-nocar:_cancel_flight",
	}
	if got := slices.Compact(p.lines("bookings.txt")); !slices.Equal(got, want) {
		t.Errorf("the services did %q, want %q", got, want)
	}
}

// Rule: after a kill of the program, model calls that already had an answer are not repeated, and
// calls that were in progress are repeated once.
func TestExampleAgentPipeline(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	x := p.example("agent-pipeline", "climbing")
	x.until("the program writes a draft", func() bool {
		return slices.ContainsFunc(p.lines("calls.txt"), func(l string) bool { return strings.HasPrefix(l, "draft") })
	})
	x.kill()
	before := p.lines("calls.txt")
	p.example("agent-pipeline", "climbing").wait(patience).want(0).showing("draft 2", "what is known of tools")
	after := p.lines("calls.txt")[len(before):]
	roles := make([]string, len(after))
	for i, l := range after {
		roles[i], _, _ = strings.Cut(l, ":")
	}
	all := "draft review draft review"
	if got := strings.Join(roles, " "); !strings.HasSuffix(all, got) {
		t.Errorf("after the kill the program calls %s, want %s or its end; before the kill %q", got, all, before)
	}
}

// Rule: an order that the database refuses starts no execution. An accepted order is shipped
// although a kill ended the application immediately after the acceptance.
func TestExampleWebOrders(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	database := pgtest.Shared(t).Database(t)
	open := func() (*started, string) {
		x := p.example("web-orders", database, "127.0.0.1:0")
		x.shows("serving ")
		return x, strings.TrimSpace(strings.TrimPrefix(x.out.String(), "serving "))
	}
	post := func(url, customer string) (status int, id int64) {
		r, err := http.Post(url+"/orders", "application/json", strings.NewReader(`{"customer": "`+customer+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var body struct{ Order int64 }
		_ = json.NewDecoder(r.Body).Decode(&body) // a refusal has a plain text as its body, and no JSON
		return r.StatusCode, body.Order
	}
	x, url := open()
	if status, _ := post(url, ""); status != http.StatusUnprocessableEntity {
		t.Errorf("an order without a customer: %d", status)
	}
	status, id := post(url, "ada")
	x.kill()
	if status != http.StatusCreated {
		t.Fatalf("an order: %d", status)
	}
	x, url = open()
	x.until("the order is shipped", func() bool {
		r, err := http.Get(fmt.Sprint(url, "/orders/", id))
		if err != nil {
			return false
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		return err == nil && strings.Contains(string(text), "shipped")
	})
	b, err := embedded.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if page, err := b.Executions(t.Context(), belay.Filter{}); err != nil || len(page.Executions) != 1 {
		t.Errorf("%+v, %v; want one execution", page.Executions, err)
	}
}
