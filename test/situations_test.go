package test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/sqlite"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// situations has a function for each situation of the table in docs/operations.md. It brings a
// server into the situation and checks that the outputs contain the phrases that the table quotes.
var situations = map[string]func(telling){
	"the clock was set back":                 telling.clock,
	"an epoch began":                         telling.epoch,
	"another transaction has locked a table": telling.locked,
	"the disk is full":                       telling.full,
	"the database is read-only":              telling.readOnly,
	"the database is a standby":              telling.standby,
	"pages are damaged":                      telling.damaged,
	"the data directory can only be read":    telling.frozen,
	"no engine runs":                         telling.nobody,
	"the engine's process was stopped":       telling.stopped,
}

// Rule: in each situation /readyz, doctor, explain and the metrics contain the phrases that the
// table in docs/operations.md quotes.
func TestSituations(t *testing.T) {
	t.Parallel()
	rows := make(map[string][]string)
	page := read(t, "../docs/operations.md")
	_, page, _ = strings.Cut(page, "| situation |")
	page, _, _ = strings.Cut(page, "\n\n")
	for _, line := range strings.Split(page, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		rows[cells[0]] = cells[1:]
	}
	if a, b := slices.Sorted(maps.Keys(rows)), slices.Sorted(maps.Keys(situations)); !slices.Equal(a, b) {
		t.Fatalf("the page has %q, the tests %q", a, b)
	}
	for name, bring := range situations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bring(telling{newPlace(t), rows[name]})
		})
	}
}

// telling is a place (the directory of a test) with the cells of the table's row for one situation.
// The cells quote phrases of these outputs, in this order: /readyz, doctor, explain, the metrics.
type telling struct {
	*place
	cells []string
}

// phrases returns the phrases that a cell of the table quotes.
func phrases(cell string) (all []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// says waits until an output contains the phrases of a cell.
func (s telling) says(cell int, what string, say func() string) {
	s.t.Helper()
	text, want := "", phrases(s.cells[cell])
	if !poll(patience, func() bool {
		text = say()
		return !slices.ContainsFunc(want, func(p string) bool { return !strings.Contains(text, p) })
	}) {
		s.t.Errorf("%s does not say %q:\n%s", what, want, text)
	}
}

// everywhere checks /readyz and the metrics of a running server, and the outputs of doctor and
// explain.
func (s telling) everywhere(a api, id string, where ...string) {
	s.t.Helper()
	status, _ := strconv.Atoi(s.cells[0][:3])
	s.says(0, "/readyz", func() string {
		r := a.call("GET", "/readyz", "")
		if r.status != status {
			return fmt.Sprint(r.status, " ", r.text)
		}
		return r.text
	})
	if got := a.call("GET", "/readyz", ""); got.status != status {
		s.t.Errorf("/readyz: %d, want %d: %s", got.status, status, got.text)
	}
	s.commands(id, where...)
	metrics := ""
	for _, p := range phrases(s.cells[3]) {
		m := regexp.MustCompile(`^(belay_\w+) ([>=]) (\d+)$`).FindStringSubmatch(p)
		if m == nil {
			s.t.Fatalf("the page says %q of the metrics", p)
		}
		limit, _ := strconv.ParseFloat(m[3], 64)
		if !poll(patience, func() bool {
			metrics = a.call("GET", "/metrics", "").text
			line := regexp.MustCompile(`(?m)^` + m[1] + ` (\S+)$`).FindStringSubmatch(metrics)
			if line == nil {
				return false
			}
			n, _ := strconv.ParseFloat(line[1], 64)
			return m[2] == ">" && n > limit || m[2] == "=" && n == limit
		}) {
			s.t.Errorf("the metrics do not say %s:\n%s", p, clip(metrics))
		}
	}
}

// commands checks the outputs of doctor and explain.
func (s telling) commands(id string, where ...string) {
	s.t.Helper()
	for cell, args := range map[int][]string{1: {"doctor"}, 2: {"explain", id}} {
		s.says(cell, "belay "+args[0], func() string {
			r := s.belay(append(args, where...)...)
			return r.out + r.err
		})
	}
}

// waiting submits an execution that no worker takes, and returns its id.
func (s telling) waiting(a api) string {
	s.t.Helper()
	location := a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow": "w"}`).header.Get("Location")
	return location[strings.LastIndexByte(location, '/')+1:]
}

// try makes a server write again and again, as clients do, until the test ends.
func (s telling) try(a api) {
	stop, done := make(chan struct{}), make(chan struct{})
	s.t.Cleanup(func() { close(stop); <-done })
	body := strings.NewReplacer("X", strings.Repeat("x", 64<<10)).Replace(`{"workflow": "w", "input": "X"}`)
	client := &http.Client{Timeout: 5 * time.Second}
	go func() {
		defer close(done)
		for {
			if r, err := client.Post(a.url+"/v1/executions", "application/json", strings.NewReader(body)); err == nil {
				_ = r.Body.Close()
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
}

func (s telling) clock() {
	server, a := s.serve()
	id := s.waiting(a)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	db, err := sqlite.Open(s.t.Context(), filepath.Join(s.data, "belay.db"), sqlite.Options{Clock: ahead})
	must(s.t, err)
	e := engine.New(db, engine.Options{Log: quiet})
	_, err = e.Submit(s.t.Context(), belay.Submission{Workflow: "w"})
	must(s.t, err)
	must(s.t, e.Close())
	must(s.t, db.Close())
	_, a = s.serve()
	s.everywhere(a, id)
}

func (s telling) epoch() {
	server, a := s.serve()
	id := s.waiting(a)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	s.belay("restore", "--epoch").want(0)
	_, a = s.serve()
	s.everywhere(a, id)
}

// shared starts a server on a database.
func (s telling) shared(url string) (a api, where []string) {
	m := &member{group: &group{place: s.place, url: url}, listen: freeAddress(s.t)}
	m.start()
	return api{s.t, "http://" + m.listen}, []string{"--server", "http://" + m.listen}
}

func (s telling) locked() {
	srv := pgtest.Start(s.t, pgtest.Options{})
	url := srv.Database(s.t)
	a, where := s.shared(url)
	id := s.waiting(a)
	lock := s.command()
	lock.Path, lock.Args = srv.Binary("psql"), []string{"psql", "-X", "-q", url}
	in, err := lock.StdinPipe()
	must(s.t, err)
	holder := s.start(lock)
	_, err = in.Write([]byte("BEGIN;\nLOCK TABLE executions IN ACCESS EXCLUSIVE MODE;\n\\echo locked\n"))
	must(s.t, err)
	holder.until("the table is locked", func() bool { return strings.Contains(holder.out.String(), "locked") })
	s.try(a)
	s.everywhere(a, id, where...)
	must(s.t, in.Close())
	holder.wait(patience)
	until(s.t, "the server is ready again", func() bool { return a.call("GET", "/readyz", "").status == http.StatusOK })
}

func (s telling) full() {
	needsMount(s.t)
	disk := s.mount("disk", "size=8m")
	s.place.data = filepath.Join(disk, "data")
	_, a := s.serve()
	id := s.waiting(a)
	full := fill(s.t, disk)
	s.try(a)
	s.everywhere(a, id)
	must(s.t, os.Remove(full))
	until(s.t, "the server is ready again", func() bool { return a.call("GET", "/readyz", "").status == http.StatusOK })
}

func (s telling) readOnly() {
	srv := pgtest.Start(s.t, pgtest.Options{})
	a, where := s.shared(srv.Database(s.t))
	id := s.waiting(a)
	set := func(sql string) {
		for _, text := range []string{sql, "SELECT pg_reload_conf()"} {
			_, err := srv.Query("postgres", text)
			must(s.t, err)
		}
	}
	set("ALTER SYSTEM SET default_transaction_read_only = on")
	s.try(a)
	s.everywhere(a, id, where...)
	set("ALTER SYSTEM RESET default_transaction_read_only")
	until(s.t, "the server is ready again", func() bool { return a.call("GET", "/readyz", "").status == http.StatusOK })
}

func (s telling) standby() {
	primary := pgtest.Start(s.t, pgtest.Options{})
	database := primary.Database(s.t)
	name := database[strings.Index(database, "///")+3 : strings.IndexByte(database, '?')]
	other := newStandby(s.t, primary)
	other.run()
	a, where := s.shared(fmt.Sprintf("postgres://postgres@%s,127.0.0.1:%s/%s?sslmode=disable&connect_timeout=2",
		primary.Address(), other.port, name))
	id := s.waiting(a)
	other.caughtUp()
	must(s.t, primary.Kill())
	s.try(a)
	s.everywhere(a, id, where...)
	if got := other.ask("SELECT pg_promote()"); got != "t" {
		s.t.Fatalf("promote: %s", got)
	}
	until(s.t, "the server is ready again", func() bool { return a.call("GET", "/readyz", "").status == http.StatusOK })
}

func (s telling) damaged() {
	server, a := s.serve()
	id := ""
	for range 40 {
		id = s.waiting(a)
		a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow": "w", "input": "`+strings.Repeat("x", 20_000)+
			`"}`)
	}
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	damage(s.t, filepath.Join(s.data, "belay.db"))
	_, a = s.serve()
	until(s.t, "the server finds the damage", func() bool {
		got := a.call("GET", "/v1/executions", "")
		for _, e := range list(got.at("executions")) {
			if a.call("GET", "/v1/executions/"+e, "").status >= 500 {
				return true
			}
		}
		return got.status >= 500
	})
	s.everywhere(a, id)
}

func (s telling) frozen() {
	needsMount(s.t)
	disk := s.mount("disk", "size=8m")
	s.place.data = filepath.Join(disk, "data")
	server, a := s.serve()
	id := s.waiting(a)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	freeze(s.t, disk)
	if r := s.belay("serve", "--listen", "127.0.0.1:0"); r.code == 0 || r.code == 70 {
		s.t.Errorf("a server started, or calls it a bug\n%s", r)
	}
	s.commands(id)
}

func (s telling) nobody() {
	server, a := s.serve()
	id := s.waiting(a)
	a.want(http.StatusCreated, "POST", "/v1/workers",
		`{"name": "w", "workflows": [{"workflow": "v"}], "capacity": 1, "ttl": "1s"}`)
	server.signal(syscall.SIGKILL)
	server.wait(patience)
	s.commands(id)
}

func (s telling) stopped() {
	server, a := s.serve()
	id := s.waiting(a)
	server.signal(syscall.SIGSTOP)
	s.commands(id)
	server.signal(syscall.SIGCONT)
}
