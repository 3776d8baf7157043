package chaos

// g3 checks G3, that no acknowledged write is lost: the store has every acknowledged submission,
// and it has a submission in a transaction if and only if the transaction was committed.
func g3(f *finding) {
	f.told("submit", ok, func(e *entry) {
		if e.Who == "transaction" {
			f.Count("submission committed in a transaction")
		}
	})
	f.told("rolled back", ok, func(e *entry) {
		f.Count("submission rolled back in a transaction")
		if s := f.byID[e.Execution]; s != nil {
			f.Violation(s, "the execution was submitted in a transaction that was rolled back, and is there")
		}
	})
}
