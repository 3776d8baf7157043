package chaos

// g10: dead letters are conserved: each is one of an execution that is there, and the store
// counts what is there.
func g10(f *finding) {
	open := int64(0)
	for _, l := range f.Letters {
		if l.Resolution == "" {
			open++
		}
		if f.byID[l.Execution] == nil {
			f.Violation(nil, "there is a dead letter of %s, which is not there", l.Execution)
		}
	}
	f.Books(f.States, open)
}
