package chaos

// g3: no acknowledged write is lost, and a submission in a transaction is there if and only if the
// transaction was committed.
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
