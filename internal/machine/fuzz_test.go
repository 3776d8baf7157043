package machine

import (
	"math/rand/v2"
	"testing"

	"github.com/belaydev/belay"
)

// randomBytes returns random bytes that depend only on the seed.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// FuzzHistories checks that no sequence of commands, applied in batches of any size, breaks a
// guarantee that the checkers check: G1 to G3 (one writer, no stale write, nothing acknowledged is
// lost), G5 (no execution is stuck), G7 to G11 (ends, retries, idempotency keys, dead letters,
// drains), G13 (modes exclude each other), G15 (the history has no gaps) and G16 (gates let through
// only what they may).
// docs/guarantees.md defines them.
func FuzzHistories(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomBytes(seed, 400))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		src = src[:min(len(src), 4<<10)] // longer inputs find nothing more
		if _, err := play(newKeeper(), src); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRandomHistories checks long random histories in the same way, and shows that they cover the
// rules: each of requiredEvents occurred at least three times.
func TestRandomHistories(t *testing.T) {
	seen := make(map[string]int)
	seeds := []uint64{1210} // in which a check of deadlines finds the loss of a suspect's fourth run
	for n := range uint64(200) {
		seeds = append(seeds, 1000+n)
	}
	for _, seed := range seeds {
		k := newKeeper()
		if seed%4 == 1 {
			k.targets = testTargets()
		}
		p, err := play(k, randomBytes(seed, 2500))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for what, n := range p.seen {
			seen[what] += n
		}
	}
	for _, what := range requiredEvents() {
		if seen[what] < 3 {
			t.Errorf("%s happened %d times: the histories prove nothing about it", what, seen[what])
		}
	}
	t.Logf("%d kinds of things happened", len(seen))
}

// requiredEvents lists the events that the random histories must contain.
func requiredEvents() []string {
	all := []string{
		"Accept", "Accept repeated", "Accept refused: conflict", "Act repeated", "Act refused: conflict", "Append",
		"Append repeated",
		"Append refused: conflict", "CancelChild", "CancelChild repeated", "CancelChild refused: conflict",
		"CancelReplaced", "CancelReplaced repeated", "Claim",
		"Claim refused: conflict",
		"Claim refused: lease_lostexpired", "Deliver", "Deliver repeated", "Deliver refused: conflict", "Drain", "End",
		"Expire",
		"Expire refused: conflict", "Forget", "Forget repeated", "Forget refused: conflict", "Heartbeat",
		"Heartbeat refused: lease_lostexpired", "Lose", "Lose refused: conflict", "Mark", "Open",
		"Open repeated", "Part", "Part refused: conflict", "Progress", "Release", "Release refused: conflict",
		"Schedule", "Schedule refused: conflict", "Submit",
		"Submit repeated", "Submit refused: idempotency_mismatch", "Tick", "grace",
		"Lock", "Lock repeated", "Lock refused: lease_held", "Lock refused: conflict",
		"Lock refused: lease_lostexpired",
		"Lock refused: idempotency_mismatch", "Renew", "Vacate", "Vacate repeated", "Vacate refused: conflict",
		"reopened by a lock", "lost outside",
		"letter lost", "letter max_retries", "letter permanent_error", "letter timeout",
		"letter no_worker", "NoWorker", "Cordon", "Probe",
		"a swap began", "BeginSwap repeated", "EndSwap", "EndSwap repeated", "AskHolders", "Yield",
		"Lock refused: swap_in_progress",
	}
	for _, c := range []string{"Save", "Settle", "Renew"} {
		if all = append(all, c); c != "Renew" {
			all = append(all, c+" repeated", c+" refused: conflict")
		}
		for _, cause := range []belay.Cause{belay.CauseExpired, belay.CauseReassigned, belay.CauseCancelled,
			belay.CauseFinished} {
			all = append(all, c+" refused: lease_lost"+string(cause))
		}
	}
	for s := belay.Pending; s <= belay.Cancelled; s++ {
		all = append(all, "state "+s.String())
	}
	for o := belay.OutcomeSucceeded; o <= belay.OutcomeCancelled; o++ {
		if o != belay.OutcomeLost {
			all = append(all, "settle as "+o.String())
		}
	}
	for _, a := range actions {
		all = append(all, "control "+string(a))
	}
	return all
}
