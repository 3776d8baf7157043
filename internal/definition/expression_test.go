package definition

import (
	"strings"
	"testing"
	"time"
)

// Rule: an expression has the value that its author expects.
func TestExpressions(t *testing.T) {
	env := &Env{
		Input: map[string]any{"n": 3, "f": 1.5, "s": "abc", "list": []any{3, 1, 2}, "m": map[string]any{"b": 1,
			"a": 2}},
		Tasks: map[string]Outcome{
			"build": {State: "succeeded", Output: map[string]any{"ok": true, "files": []any{"a.go", "b.go"}}},
			"bad":   {State: "failed", Error: "exit code 1"},
		},
		Item: "x", Index: 4, Execution: map[string]any{"id": "ex_1"},
	}
	for source, want := range map[string]string{
		`input.n + 1`:                                `4`,
		`input.n / 2`:                                `1.5`,
		`input.s + "d"`:                              `"abcd"`,
		`input.missing`:                              `null`,
		`input.missing?.deep`:                        `null`,
		`input.missing ?? "none"`:                    `"none"`,
		`len(input.list)`:                            `3`,
		`sort(input.list)`:                           `[1,2,3]`,
		`map(input.list, # * 2)`:                     `[6,2,4]`,
		`filter(input.list, # > 1)`:                  `[3,2]`,
		`all(input.list, # > 0) && true`:             `true`,
		`keys(input.m)`:                              `["a","b"]`,
		`values(input.m)`:                            `[2,1]`,
		`tasks.build.output.files[0]`:                `"a.go"`,
		`tasks["build"].state == "succeeded"`:        `true`,
		`tasks.bad.error`:                            `"exit code 1"`,
		`tasks.build.error == nil`:                   `true`,
		`item + string(index)`:                       `"x4"`,
		`join(split("a,b", ","), "-")`:               `"a-b"`,
		`1..3`:                                       `[1,2,3]`,
		`input.s matches "^a.c$"`:                    `true`,
		`execution.id`:                               `"ex_1"`,
		`{"a": [1, input.n]}`:                        `{"a":[1,3]}`,
		`let x = input.n; x * x`:                     `9`,
		`input.n > 2 ? "big" : "small"`:              `"big"`,
		`toJSON(fromJSON("{\"a\": 1}"))`:             `"{\"a\":1}"`,
		`flatten([[1], 2, [3, [4]]])`:                `[1,2,3,[4]]`,
		`uniq([1, 1, "a"])`:                          `[1,"a"]`,
		`concat([1], [2, 3])`:                        `[1,2,3]`,
		`"b" in keys(input.m)`:                       `true`,
		`replace("a.b", ".", "-")`:                   `"a-b"`,
		`input.list[1:]`:                             `[1,2]`,
		`"<&>"`:                                      `"<&>"`,
		`sum(input.list)`:                            `6`,
		`find(input.list, # == 2)`:                   `2`,
		`map(input.list, ({"v": #}))`:                `[{"v":3},{"v":1},{"v":2}]`,
		`sortBy(map(input.list, ({"v": #})), .v)[0]`: `{"v":1}`,
	} {
		p, err := Compile(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		v, err := p.Eval(env)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := jsonOf(v); err != nil || got != want {
			t.Errorf("%s is %s, not %s (%v)", source, got, want, err)
		}
	}
}

// Rule: an expression that would need too much time or memory fails within its budget, and its error names it.
func TestExpressionBudgets(t *testing.T) {
	big := make([]any, 90_000)
	for i := range big {
		big[i] = i
	}
	long := strings.Repeat("a", 1<<20-100)
	env := &Env{Input: map[string]any{"a": big, "s": long}}
	for _, source := range []string{
		`count(input.a, count(input.a, count(input.a, true) > 0) > 0)`,
		`map(1..90000, map(1..90000, #))`,
		`len(1..1000000000)`,
		`let a = input.s + input.s; let b = a + a; len(b)`,
		`let a = [input.a, input.a]; let b = [a, a]; let c = [b, b]; c == c`,
		`replace(input.s, "a", input.s)`,
		`join(input.a, input.s)`,
		`map(input.a, input.s)`,
		`count(input.a, input.s contains "aaaaaaaaab")`,
		`count(input.a, 90001 in input.a)`,
		`filter(input.a, join(input.a) == "")`,
		`toJSON(map(1..1000, input.s))`,
		`sort(map(input.a, map(input.a, #)))`,
		`1 / 0`,
		`input.s matches "a"`,
		`split(input.s, "")`,
		`count(input.a, sortBy(input.a, -#)[0] == 1)`,
	} {
		p, err := Compile(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		start := time.Now()
		v, err := p.Eval(env)
		if err == nil {
			t.Errorf("%s is %.40v, and no error", source, v)
			continue
		}
		if !strings.Contains(err.Error(), "expression ") {
			t.Errorf("the error does not name the expression: %v", err)
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("%s took %s", source, d)
		}
		t.Logf("%s: %s: %v", source, time.Since(start), err)
	}
}

// Rule: matches spends steps in proportion to the size of its pattern and its text.
func TestMatchesSpendsSteps(t *testing.T) {
	p, err := Compile(`count(1..12, input matches "^b(?:a?){450}")`)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := p.Eval(&Env{Input: strings.Repeat("a", 1000)}); err != nil || v != 0 {
		t.Error(v, err)
	}
	v, err := p.Eval(&Env{Input: strings.Repeat("a", maxMatch)})
	if err == nil || !strings.Contains(err.Error(), "steps") {
		t.Error(v, err)
	}
	many := strings.TrimSuffix(strings.Repeat(`input matches "(a?){200}b" or `, 20), " or ")
	if _, err := Compile(many); err == nil || !strings.Contains(err.Error(), "together") {
		t.Error(err)
	}
}

// Rule: an expression that could do what expressions may not do is refused, and the error says why.
func TestExpressionsRefused(t *testing.T) {
	for source, want := range map[string]string{
		``:                              "it is empty",
		`input.n +`:                     "unexpected token",
		`inptu.n`:                       `did you mean "input"?`,
		`now()`:                         "now",
		`date("2020-01-01")`:            "date",
		`tasks`:                         "name one task",
		`tasks.build`:                   "tasks.build.output",
		`tasks.build.outptu`:            `did you mean "output"?`,
		`tasks[input.name].output`:      "name one task",
		`let tasks = 1; tasks`:          "may not have the name",
		`__guard(1)`:                    "unknown name",
		`secrets.TOKEN + "x"`:           "must stand alone",
		`"a" matches input.pattern`:     "must be a text in quotes",
		`"a" matches "("`:               "no regular expression",
		`"a" matches "(a{1000}){1000}"`: "regular expression",
		`"a" matches "(abcdefghijklmnopqrst){999}"`:               "repeats too much",
		strings.Repeat("(", 5000):                                 "the limit is",
		strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100): "brackets within each other",
		strings.Repeat("1+", 600) + "1":                           "nodes",
		`reduce(1..3, #acc + #)`:                                  "reduce",
		`repeat("a", 1000)`:                                       "repeat",
		`$env`:                                                    "$env",
		`env("HOME")`:                                             "env",
		`b"abc"`:                                                  "may not have bytes",
	} {
		_, err := Compile(source)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want an error with %q", source, err, want)
		}
	}
}
