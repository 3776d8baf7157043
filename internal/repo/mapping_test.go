package repo

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// These expressions find the parts of docs/mapping.md that the test reads: the last cell of a row, code
// in it, and routes, fields and settings.
var (
	mappedCode  = regexp.MustCompile("`([^`]+)`")
	mappedRoute = regexp.MustCompile(`^(GET|POST|PUT|DELETE) (/\S+)$`)
	mappedWord  = regexp.MustCompile(`^[a-z_]+(\.[a-z_]+)?$`)
)

// Rule: every route, field and setting of Belay that docs/mapping.md names exists.
func TestTheMappingNamesThingsThatExist(t *testing.T) {
	contract := read(t, "internal/httpapi/testdata/openapi.json")
	var document struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(contract), &document); err != nil {
		t.Fatal(err)
	}
	settings, client := read(t, "docs/configuration.md"), read(t, "clients/typescript/src/dead.ts")+
		read(t, "clients/typescript/src/client.ts")
	routes, words := 0, 0
	for line := range strings.Lines(read(t, "docs/mapping.md")) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 2 {
			continue
		}
		for _, code := range mappedCode.FindAllStringSubmatch(cells[1], -1) {
			switch route, word := mappedRoute.FindStringSubmatch(code[1]), code[1]; {
			case route != nil:
				if routes++; document.Paths[route[2]][strings.ToLower(route[1])] == nil {
					t.Errorf("there is no route %s", word)
				}
			case mappedWord.MatchString(word):
				words++
				method, isMethod := strings.CutPrefix(word, "dead.")
				if !strings.Contains(contract, `"`+word+`"`) && !strings.Contains(settings, "`"+word+"`") &&
					!(isMethod && strings.Contains(client, "  "+method+"(")) && !strings.Contains(client, "  "+word+"(") &&
					!mappedElsewhere[word] {
					t.Errorf("there is no field, setting or method %s", word)
				}
			}
		}
	}
	if routes < 30 || words < 80 {
		t.Errorf("%d routes and %d words were found", routes, words)
	}
}

// mappedElsewhere are packages and values in docs/mapping.md that no contract names.
var mappedElsewhere = map[string]bool{"worker": true, "workflow": true, "half_open": true}
