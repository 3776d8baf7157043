package postgres

// LookAlways has the store look for the ready lanes each time, however long it takes.
func (s *Store) LookAlways() { s.leaps.always = true }
