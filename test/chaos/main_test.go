package chaos

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "repeat the random choices of this seed; 0 takes a new one")
	forFlag   = flag.Duration("for", time.Minute, "the time with faults, for all stores together")
	storeFlag = flag.String("store", "", "only on this store: sqlite or postgres")
	judgeFlag = flag.String("judge", "", "check the history in this file again")
)

// roleEnv is the environment variable that makes the test binary run as a worker.
const roleEnv = "CHAOS_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "worker" {
		if err := workerProcess(); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if *seedFlag == 0 {
		*seedFlag = uint64(time.Now().UnixNano()) % 1_000_000
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "belay-chaos-build-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

// buildDir is the directory of the belay under test.
var buildDir string

// short reports whether the run is no longer than a minute, as in make test. A short run runs its
// worlds (one for each store) at the same time.
func short() bool { return *forFlag <= time.Minute }

// needsLong skips a test that takes too long for a short run.
func needsLong(t *testing.T) {
	t.Helper()
	if short() {
		t.Skip("only in runs of more than a minute")
	}
}

// quiet discards log lines.
var quiet = slog.New(slog.DiscardHandler)
