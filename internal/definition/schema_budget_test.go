package definition

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// inputSchema returns the input schema of a document.
func inputSchema(t *testing.T, schema string) *Schema {
	t.Helper()
	d, problems := Parse("doc.yaml", []byte("name: n\ninput: "+schema+"\ntasks:\n  - {id: a, uses: x}\n"))
	if d == nil {
		t.Fatal(problems)
	}
	return d.Input
}

// Rule: no validation costs more than its budget, whatever the schema and the value are.
func TestValidationHasABudget(t *testing.T) {
	numbers := make([]any, 400_000)
	nested := make([]any, 40_000)
	for i := range numbers {
		numbers[i] = i
	}
	for i := range nested {
		e := []any{}
		for bit := range 16 { // all have the same number of lists
			if i>>bit&1 == 0 {
				e = []any{e}
			} else {
				e = append(e, []any{})
			}
		}
		nested[i] = e
	}
	text := strings.Repeat("a", 900<<10)
	many := func(n int, s string) string { return strings.TrimSuffix(strings.Repeat(s+", ", n), ", ") }
	for name, x := range map[string]struct {
		schema string
		value  any
		want   string
	}{
		"many alternatives":   {"{anyOf: [" + many(490, "{items: {type: string}}") + "]}", numbers, "comparisons"},
		"long enum":           {"{items: {enum: [" + many(5000, "x") + "]}}", numbers, "comparisons"},
		"lists with one hash": {"{uniqueItems: true}", nested, "comparisons"},
		"slow patterns":       {"{allOf: [" + many(12, `{pattern: "(a?){200}b"}`) + "]}", text, "too long"},
		"one slow pattern":    {`{pattern: "(a?){200}b"}`, text, "too long"},
		"patterns of keys":    {`{propertyNames: {pattern: "(a?){200}b"}}`, map[string]any{text: 1}, "too long"},
		"names of patterns":   {`{patternProperties: {"(a?){200}b": true}}`, map[string]any{text: 1}, "too long"},
		"lengths":             {"{allOf: [" + many(900, "{minLength: 1}") + "]}", text, "comparisons"},
	} {
		s := inputSchema(t, x.schema)
		start := time.Now()
		err := s.Validate(x.value, "input")
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %.200v", name, err)
		}
		if took := time.Since(start); took > 3*time.Second { // milliseconds on an idle machine
			t.Errorf("%s took %s", name, took)
		}
	}
	if err := inputSchema(t, "{items: {type: integer}}").Validate(numbers, "input"); err != nil {
		t.Errorf("a large input with a small schema: %s", err)
	}
	if err := inputSchema(t, `{pattern: "^[a-z]+$"}`).Validate(text, "input"); err != nil {
		t.Errorf("a long text with a simple pattern: %s", err)
	}
}

// Rule: a schema may not have patterns that are large together.
func TestPatternsOfASchemaHaveALimit(t *testing.T) {
	text := "name: n\ninput: {allOf: [" + strings.Repeat(`{pattern: "(a?){200}b"}, `, 50) + "true]}\n" +
		"tasks:\n  - {id: a, uses: x}\n"
	if d, problems := Parse("doc.yaml", []byte(text)); d != nil || !strings.Contains(problems.Error(), "together") {
		t.Error(problems)
	}
}

// Rule: a document with the most tasks, needs and expressions is checked in a short time.
func TestExpressionsInALargeGraph(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: n\ntasks:\n")
	for i := range MaxTasks {
		fmt.Fprintf(&b, "  - id: t%d\n    uses: x\n", i)
		if i == 0 {
			continue
		}
		var needs []string
		for n := max(0, i-10); n < i; n++ {
			needs = append(needs, fmt.Sprintf("t%d", n))
		}
		fmt.Fprintf(&b, "    needs: [%s]\n", strings.Join(needs, ","))
		b.WriteString("    with: \"${{ tasks.t0.state }}${{ tasks.t0.error }}\"\n")
	}
	start := time.Now()
	d, problems := Parse("doc.yaml", []byte(b.String()))
	if d == nil {
		t.Fatal(problems)
	}
	if took := time.Since(start); took > 3*time.Second { // tens of milliseconds on an idle machine
		t.Errorf("it took %s", took)
	}
}
