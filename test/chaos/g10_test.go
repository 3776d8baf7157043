package chaos

// g10 checks G10, that dead letters are conserved: each dead letter belongs to an existing
// execution, and the store's count is the number of existing dead letters.
func g10(f *finding) {
	open := int64(0)
	for _, l := range f.Letters {
		if l.Resolution == "" {
			open++
		}
		if f.byID[l.Execution] == nil {
			f.Violation(nil, "there is a dead letter of %s, which does not exist", l.Execution)
		}
	}
	f.Books(f.States, open)
}
