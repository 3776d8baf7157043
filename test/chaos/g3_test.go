package chaos

// g3: nothing acknowledged is lost, and what was submitted in a transaction is there if and
// only if that was committed.
func g3(f *finding) {
	f.told("submit", ok, func(e *entry) {
		if e.Who == "transaction" {
			f.Count("submission committed in a transaction")
		}
	})
	f.told("rolled back", ok, func(e *entry) {
		f.Count("submission rolled back in a transaction")
		if s := f.byID[e.Execution]; s != nil {
			f.Violation(s, "it was submitted in a transaction that was rolled back, and is there")
		}
	})
}
