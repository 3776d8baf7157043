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
	seedFlag  = flag.Uint64("seed", 0, "decide as this seed did; 0 takes a new one")
	forFlag   = flag.Duration("for", time.Minute, "for how long things go wrong, on all stores together")
	storeFlag = flag.String("store", "", "on this store alone: sqlite or postgres")
	judgeFlag = flag.String("judge", "", "judge the history in this file again")
)

// roleEnv makes the test binary one of the workers.
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
	os.Exit(m.Run())
}

// short says that the run is one of make test.
func short() bool { return *forFlag <= time.Minute }

// needsLong skips in short runs what takes too long for them.
func needsLong(t *testing.T) {
	t.Helper()
	if short() {
		t.Skip("only in runs of more than a minute")
	}
}

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)
