package test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/registry"
)

// The model-based test of the registry: processes ("participants") that register, renew, release and
// swap at random, and report what they did. The test kills, stops and continues them, and then
// checks the reports with a model of the promises.

// modelTTL is the TTL of the participants' entries. It is so short that stopped participants lose theirs.
const modelTTL = 150 * time.Millisecond

// modelRecipes are the recipes of the participants.
var modelRecipes = []string{"a", "b", "c"}

// fact is a report of a participant. All times are readings of CLOCK_BOOTTIME.
type fact struct {
	// Kind is used (the participant had an entry of the recipe), swapped (a swap to the recipe was
	// granted), or marked (its marker was there); refused and did only count.
	Kind   string
	Recipe string
	// The period in which this was certain, from the participant's view. To is 0 for a period that was
	// not over when the participant reported it.
	From, To time.Duration
	// Began is when the call began with which the period began.
	Began time.Duration
	// ID joins the reports about one period; the last one counts.
	ID int
	// Op is the operation that the participant carried out.
	Op string
}

// participant is a process that acts at random. It gets commands on its standard input: a line for each
// operation that it may carry out.
type participant struct {
	r     *registry.Registry
	dice  *rand.Rand
	name  string
	out   *json.Encoder
	entry *registry.Workflow
	use   fact // the period of the entry
	ids   int
}

// memberProcess is the role of a participant: its arguments are the data directory, a name and a seed.
func participantProcess() error {
	args := os.Args[1:]
	r, err := registry.Open(args[0])
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	m := &participant{r: r, name: args[1], dice: rand.New(rand.NewPCG(seed, 1)), out: json.NewEncoder(os.Stdout)}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := m.act(context.Background(), in.Text()); err != nil {
			return err
		}
	}
	return nil
}

func (m *participant) tell(f fact) { _ = m.out.Encode(f) }

// act carries out one operation: a swap if wish is "swap", and otherwise a random one. Refusals are
// part of the model; other errors end the participant.
func (m *participant) act(ctx context.Context, wish string) (err error) {
	op := "register"
	switch n := m.dice.IntN(20); {
	case n < 3 || wish == "swap":
		op = "swap"
		err = m.swap(ctx)
	case m.entry == nil:
		err = m.register(ctx)
	case n < 13:
		op = "renew"
		err = m.renew(ctx)
	case n < 15:
		op = "list"
		_, err = m.r.List(ctx)
	default:
		op = "release"
		err = m.release(ctx)
	}
	if errors.Is(err, syscall.EAGAIN) {
		err = nil
	}
	m.tell(fact{Kind: "did", Op: op})
	return err
}

func (m *participant) register(ctx context.Context) error {
	recipe := modelRecipes[m.dice.IntN(len(modelRecipes))]
	sent := host.Boottime()
	w, err := m.r.Register(ctx, registry.Registration{
		Name: m.name, Recipe: recipe, TTL: modelTTL, Preemptible: m.dice.IntN(2) == 0,
	})
	if err != nil {
		return err
	}
	m.entry = &w
	m.ids++
	// The entry is certain until its TTL is over, counted from before the call.
	m.use = fact{Kind: "used", Recipe: recipe, Began: sent, From: host.Boottime(), To: sent + modelTTL,
		ID: m.ids}
	m.tell(m.use)
	return nil
}

func (m *participant) renew(ctx context.Context) error {
	sent := host.Boottime()
	_, err := m.r.Renew(ctx, *m.entry)
	if err != nil {
		m.entry = nil // lost: the TTL that the last report has is over
		return lost(err)
	}
	m.use.To = sent + modelTTL
	m.tell(m.use)
	if asked, err := m.r.Preempted(ctx, *m.entry); err != nil || asked {
		if err == nil {
			return m.release(ctx)
		}
		m.entry = nil
		return lost(err)
	}
	return nil
}

func lost(err error) error {
	if strings.Contains(err.Error(), "not registered any more") {
		return nil
	}
	return err
}

func (m *participant) release(ctx context.Context) error {
	m.use.To = min(m.use.To, host.Boottime())
	m.tell(m.use)
	err := m.r.Release(ctx, *m.entry)
	m.entry = nil
	if err != nil {
		return lost(err)
	}
	return nil
}

func (m *participant) swap(ctx context.Context) error {
	recipe := modelRecipes[m.dice.IntN(len(modelRecipes))]
	s, err := m.r.Begin(ctx, recipe)
	if err != nil {
		return err
	}
	m.ids++
	marked := fact{Kind: "marked", Recipe: recipe, From: host.Boottime(), ID: m.ids}
	m.tell(marked)
	within, cancel := context.WithTimeout(ctx, time.Duration(m.dice.Int64N(int64(modelTTL))))
	defer cancel()
	var swapped fact
	if err = s.Await(within, nil); err == nil {
		m.ids++
		swapped = fact{Kind: "swapped", Recipe: recipe, From: host.Boottime(), ID: m.ids}
		m.tell(swapped)
		select { // the time that the change of the resource takes
		case <-time.After(time.Duration(m.dice.Int64N(int64(3 * time.Millisecond)))):
		case <-ctx.Done():
		}
		swapped.To = host.Boottime()
		m.tell(swapped)
	}
	marked.To = host.Boottime()
	m.tell(marked)
	return errors.Join(s.End(ctx, err), err)
}

// troupe is a set of participants, and what they have reported.
type troupe struct {
	t    *testing.T
	dir  string
	dice *rand.Rand

	mu    sync.Mutex
	facts []fact
	did   map[string]int

	kills, stops, recycled int
	done                   int // operations that participants have completed
	orphans                int // swaps that were cleared after the end of their processes
}

// play lets one place of the troupe carry out n operations: a participant after the other, each of which
// is killed after a while.
func (tr *troupe) play(place, n int, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, uint64(place)))
	last := 0
	for done := 0; done < n; {
		life := min(1+dice.IntN(60), n-done)
		last = tr.live(place, life, dice, last)
		done += life
	}
}

// live runs a participant for some operations, stops and continues it now and then, and kills it in the
// middle of an operation. If it may, it gives the participant the number of the participant before.
func (tr *troupe) live(place, life int, dice *rand.Rand, last int) (pid int) {
	cmd := exec.Command("/proc/self/exe", tr.dir, fmt.Sprint("participant-", place), fmt.Sprint(dice.Uint64()))
	cmd.Env = append(os.Environ(), roleEnv+"=participant", "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err = errors.Join(err, oerr); err == nil {
		err = tr.start(cmd, last)
	}
	if err != nil {
		tr.t.Error(err)
		return 0
	}
	decoder := json.NewDecoder(out)
	var facts []fact
	for i := range life {
		kill, stop, wish := i == life-1, dice.IntN(25) == 0, ""
		if kill && dice.IntN(2) == 0 {
			wish = "swap"
		}
		_, _ = fmt.Fprintln(in, wish)
		if kill { // somewhere in the middle of the last operation
			select {
			case <-time.After(time.Duration(dice.Int64N(int64(30 * time.Millisecond)))):
			case <-tr.t.Context().Done():
			}
			break
		}
		if stop {
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			select {
			case <-time.After(time.Duration(dice.Int64N(int64(modelTTL + modelTTL/4)))):
			case <-tr.t.Context().Done():
			}
			_ = cmd.Process.Signal(syscall.SIGCONT)
			tr.count(&tr.stops)
		}
		var f fact
		for f.Kind != "did" {
			f = fact{}
			if err := decoder.Decode(&f); err != nil {
				tr.t.Errorf("a participant ended by itself: %v", err)
				return 0
			}
			facts = append(facts, f)
		}
	}
	killed := host.Boottime()
	_ = cmd.Process.Kill()
	for { // what the participant still said before it was killed
		var f fact
		if decoder.Decode(&f) != nil {
			break
		}
		facts = append(facts, f)
	}
	_ = cmd.Wait()
	tr.count(&tr.kills)
	tr.report(facts, killed)
	return cmd.Process.Pid
}

// numbers orders the starts of participants, so that each gets the number that it should get.
var numbers sync.Mutex

// start starts a participant. In a PID namespace of its own, the participant gets the number last.
func (tr *troupe) start(cmd *exec.Cmd, last int) error {
	const next = "/proc/sys/kernel/ns_last_pid"
	if last == 0 || os.Getenv(namespaceEnv) == "" {
		return cmd.Start()
	}
	numbers.Lock()
	defer numbers.Unlock()
	if err := os.WriteFile(next, []byte(strconv.Itoa(last-1)), 0); err != nil {
		return err
	}
	err := cmd.Start()
	if err == nil && cmd.Process.Pid == last {
		tr.count(&tr.recycled)
	}
	return err
}

func (tr *troupe) count(n *int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	*n++
}

// report keeps the last fact of each period. Periods end with the participant.
func (tr *troupe) report(facts []fact, killed time.Duration) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	last := make(map[int]int)
	for i, f := range facts {
		if f.Kind == "did" {
			tr.did[f.Op]++
			tr.done++
			continue
		}
		last[f.ID] = i
	}
	for _, i := range last {
		f := facts[i]
		if f.To == 0 || f.To > killed {
			f.To = killed
		}
		if f.From < f.To {
			tr.facts = append(tr.facts, f)
		}
	}
}

// check compares the periods of all participants: while a granted swap to a recipe lasts, no participant has
// an entry of another recipe; two swaps never overlap; and no entry of another recipe begins while
// a marker is there.
func (tr *troupe) check() {
	slices.SortFunc(tr.facts, func(a, b fact) int { return int(a.From - b.From) })
	seen := make(map[string]int)
	for i, a := range tr.facts {
		seen[a.Kind]++
		for _, b := range tr.facts[i+1:] {
			if b.From >= a.To+modelTTL+time.Second {
				break // the longest period is shorter
			}
			overlap := b.From < a.To
			switch kinds := a.Kind + " " + b.Kind; {
			case !overlap || a.Recipe == b.Recipe && (a.Kind == "used" || b.Kind == "used"):
			case kinds == "used swapped", kinds == "swapped used", kinds == "swapped swapped", kinds == "marked marked":
				tr.t.Errorf("G13: %+v overlaps %+v", a, b)
			case kinds == "marked used" && b.Began >= a.From:
				tr.t.Errorf("a workflow registered during a swap to another recipe: %+v, %+v", a, b)
			}
		}
	}
	tr.t.Logf("%d kills, %d stops, %d recycled numbers, operations %v, periods %v", tr.kills, tr.stops, tr.recycled,
		tr.did, seen)
	for _, kind := range []string{"used", "swapped", "marked"} {
		if seen[kind] == 0 {
			tr.t.Errorf("INCONCLUSIVE: no period of the kind %s", kind)
		}
	}
}

// checkLog checks that each swap in the log has one end, and that the log has no swap that began
// before the end of another one.
func (tr *troupe) checkLog() (orphans int) {
	open, ends := "", make(map[string]int)
	for line := range strings.Lines(read(tr.t, filepath.Join(tr.dir, "swap_log.jsonl"))) {
		var e registry.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			tr.t.Fatalf("%q: %v", line, err)
		}
		switch e.Kind {
		case registry.EventBegin:
			if open != "" {
				tr.t.Errorf("swap %s began before the end of %s", e.Swap, open)
			}
			open = e.Swap
		case registry.EventDone, registry.EventFailed, registry.EventOrphanCleared:
			if e.Kind == registry.EventOrphanCleared {
				orphans++
			}
			if ends[e.Swap]++; ends[e.Swap] > 1 || open != "" && open != e.Swap {
				tr.t.Errorf("swap %s has a second end, or swap %s has none: %s", e.Swap, open, line)
			}
			open = ""
		case registry.EventGranted, registry.EventPreemptRequested:
			if e.Swap != open {
				tr.t.Errorf("swap %s acts outside of its time: %s", e.Swap, line)
			}
		case registry.EventQuarantined, registry.EventRepaired:
			tr.t.Errorf("the state file was damaged: %s", line)
		}
	}
	if open != "" {
		tr.t.Errorf("swap %s has no end", open)
	}
	tr.t.Logf("%d swaps, %d orphans", len(ends), orphans)
	return orphans
}

// namespaceEnv says that the test runs in a PID namespace of its own.
const namespaceEnv = "BLACKBOX_NAMESPACE"

// Rule: the registry keeps its promises (G13) while processes register, renew, release, swap, and
// are killed, stopped and continued at random. With root, they run in a PID namespace in which new
// processes get the numbers of dead ones. At the end no lock, marker or entry is left.
func TestTheRegistryKeepsItsPromises(t *testing.T) {
	if os.Getenv(namespaceEnv) != "" {
		play13(t)
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		play13(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--pid", "--fork", "--mount-proc", "--kill-child", self, "-test.run", "^" + t.Name() + "$",
		"-test.v", "-seed", fmt.Sprint(*seed)}
	if *long {
		args = append(args, "-long", "-test.timeout", "1h")
	}
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in a PID namespace: %v", err)
	}
}

// play13 plays one round, or with -long as many rounds as it takes to complete 100,000 operations. The
// operations in whose middle participants were killed do not count.
func play13(t *testing.T) {
	least := 1
	if *long {
		least = 100_000
	}
	all, sum, rounds := dice(t), troupe{}, 0
	for ; sum.done < least && !t.Failed(); rounds++ {
		one := playRound(t, all)
		sum.done, sum.kills, sum.stops = sum.done+one.done, sum.kills+one.kills, sum.stops+one.stops
		sum.recycled, sum.orphans = sum.recycled+one.recycled, sum.orphans+one.orphans
	}
	t.Logf("in all %d operations in %d rounds, %d kills, %d stops, %d recycled numbers, %d orphans", sum.done, rounds,
		sum.kills, sum.stops, sum.recycled, sum.orphans)
	if sum.orphans == 0 && *long { // in a single round there may be none by chance
		t.Error("INCONCLUSIVE: no orphan was cleared")
	}
}

// playRound lets participants begin 2,000 operations in a new data directory.
func playRound(t *testing.T, dice *rand.Rand) *troupe {
	const places, operations = 6, 2000
	tr := &troupe{t: t, dir: filepath.Join(t.TempDir(), "data"), dice: dice, did: make(map[string]int)}
	var playing sync.WaitGroup
	for i := range places {
		seed := tr.dice.Uint64()
		playing.Go(func() { tr.play(i, operations/places+1, seed) })
	}
	playing.Wait()
	tr.check()
	s, err := registry.List(t.Context(), tr.dir)
	if err != nil || s.Unsaved != nil || len(s.Workflows) > 0 || s.Swap != nil {
		t.Errorf("after the end of all participants: %+v, %v", s, err)
	}
	r, err := registry.Open(tr.dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	swap, err := r.Begin(ctx, "a")
	if err == nil {
		err = errors.Join(swap.Await(ctx, nil), swap.End(ctx, nil))
	}
	if err != nil {
		t.Errorf("after the end of all participants: %v", err)
	}
	tr.orphans = tr.checkLog()
	if os.Getenv(namespaceEnv) != "" && tr.recycled == 0 {
		t.Error("INCONCLUSIVE: no number was used again")
	}
	return tr
}
