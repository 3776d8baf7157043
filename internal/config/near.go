package config

// nearest returns the name that is most similar to s; "" if no name is similar.
func nearest(s string, names []string) string {
	best, least := "", min(3, (len(s)+1)/3)+1
	for _, n := range names {
		if d := distance(s, n, least); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is the edit distance of a and b: how many characters must be added, left out or changed
// to turn a into b. If the distance is most or greater, the result is most.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], most)
}
