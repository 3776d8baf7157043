package simulation

// g7 checks G7, that an end is final, row by row: no commit reverses an end or lowers a generation,
// a seq or a token, and each generation ends in the state that its events show.
func g7(f *finding) {
	for _, s := range f.stories {
		for _, r := range s.rows {
			if want := s.Ended(r.Generation); r.State.Terminal() && r.State != want {
				f.violation(s, r.c, "generation %d ended as %s, and by its events as %s", r.Generation, r.State, want)
			}
		}
		for i := 1; i < len(s.rows); i++ {
			before, r := s.rows[i-1], s.rows[i]
			if before.State.Terminal() && r.Generation == before.Generation && r.State != before.State {
				f.violation(s, r.c, "it was %s and became %s", before.State, r.State)
			}
			if r.Generation < before.Generation || r.Seq < before.Seq || r.Token < before.Token {
				f.violation(s, r.c, "generation, seq or token went back")
			}
		}
	}
}
