package definition

import (
	"fmt"
	"slices"
	"strings"
)

// didYouMean suggests the known name that is most like the unknown one; empty if none is like it.
func didYouMean(unknown string, known []string) string {
	if best := nearest(unknown, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// orList suggests the name that is most like the unknown one, or lists the known names if none is like it.
func orList(unknown string, known []string) string {
	if s := didYouMean(unknown, known); s != "" || len(known) == 0 {
		return s
	}
	const most = 12
	if len(known) > most {
		return "it can be " + strings.Join(known[:most], ", ") + " and others"
	}
	return "it can be " + strings.Join(known, ", ")
}

// longest is the longest name that is compared: a longer name is no typing error, and comparing it would take long.
const longest = 64

func nearest(unknown string, known []string) string {
	unknown = strings.ToLower(unknown)
	if stem, plural := strings.CutSuffix(unknown, "ies"); plural && slices.Contains(known, stem+"y") {
		return stem + "y"
	}
	best, least := "", 0
	for _, k := range known {
		if len(unknown) > longest || len(k) > longest {
			continue
		}
		d := distance(unknown, strings.ToLower(k))
		if begins(unknown, k) {
			d = 1
		}
		if d <= (max(len(k), len(unknown))+1)/3 && d < min(len(k), len(unknown)) && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// begins reports whether one name is the beginning of the other, with three letters at least.
func begins(a, b string) bool {
	const fewest = 3
	return min(len(a), len(b)) >= fewest && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// distance is the number of insertions, deletions, replacements and exchanges of neighbours that make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
