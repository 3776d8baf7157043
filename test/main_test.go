package test

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/gitwatch"
)

var (
	long  = flag.Bool("long", false, "every crash point instead of a sample, and more rounds of each race")
	shots = flag.String("shots", "", "write pictures of all pages of the web UI into this directory")
	seed  = flag.Uint64("seed", 0, "repeat the random choices of this seed; 0 takes a new one")
)

// roleEnv is the environment variable that makes the test binary run as one of the programs that
// tests start beside belay.
const roleEnv = "BLACKBOX_ROLE"

// roles are the programs that the test binary can run as, by name.
var roles = map[string]func() error{
	"acknowledge": acknowledge,
	"bare":        bareProcess,
	"caller":      callerProcess,
	"counter":     counterProcess,
	"device":      deviceProcess,
	"engine":      engineProcess,
	"gated":       gatedProcess,
	"items":       itemProcess,
	"listener":    listenerProcess,
	"participant": participantProcess,
	"tasks":       taskProcess,
	"worker":      workerProcess,
	"writers":     writersProcess,
}

func TestMain(m *testing.M) {
	gitwatch.StandIn()
	if name := os.Getenv(roleEnv); name != "" {
		os.Exit(play(name))
	}
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	fmt.Printf("seed %d\n", *seed)
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

func play(name string) int {
	role := roles[name]
	if role == nil {
		fmt.Fprintln(os.Stderr, "no role", name)
		return 2
	}
	if err := role(); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}

// built is the belay binary under test, which the first test that needs it builds.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// binary returns the path of the real belay.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "belay-blackbox-")
		if built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "belay")
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", built.path, "../cmd/belay")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = errors.Join(err, errors.New(string(out)))
		}
	})
	if built.err != nil {
		t.Fatalf("build belay: %v", built.err)
	}
	return built.path
}

// dice returns a test's own source of random numbers. The seed and the test's name determine them.
func dice(t *testing.T) *rand.Rand {
	t.Helper()
	t.Logf("seed %d; again with: go test ./test -run '%s' -args -seed %d", *seed, t.Name(), *seed)
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(*seed, h.Sum64()))
}

// between returns a random duration from least up to most.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// sample returns n of the numbers 1 … most, in random order; with -long, it returns all of these
// numbers.
func sample(r *rand.Rand, n, most int) []int {
	all := r.Perm(most)
	for i := range all {
		all[i]++
	}
	if *long || n > most {
		n = most
	}
	return all[:n]
}
