package belay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/belaydev/belay"
	"pgregory.net/rapid"
)

// A cost that is written and read again is the same cost, and its text is the exact number of
// tokens.
func TestCostsKeepEveryDigit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := belay.Cost(rapid.Int64Range(0, math.MaxInt64).Draw(t, "cost"))
		exact := new(big.Rat).SetFrac64(int64(want), 10_000)
		if read, ok := new(big.Rat).SetString(want.String()); !ok || read.Cmp(exact) != 0 {
			t.Fatalf("%d is written as %q", want, want)
		}
		b, err := json.Marshal(map[string]belay.Cost{"cost": want})
		if err != nil || string(b) != `{"cost":`+want.String()+`}` {
			t.Fatalf("%d is encoded as %s, %v", want, b, err)
		}
		var got map[string]belay.Cost
		if err := json.Unmarshal(b, &got); err != nil || got["cost"] != want {
			t.Fatalf("%s is read as %d, %v", b, got["cost"], err)
		}
	})
}

// ParseCost accepts exactly the texts of JSON numbers, and among them exactly the numbers that are
// costs, whichever way a number is written.
func TestParseCostAcceptsExactlyTheCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		if rapid.IntRange(0, 9).Draw(t, "spoil") == 0 {
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			text = text[:at] + rapid.SampledFrom([]string{"-", ".", "e", "x", " ", "0", "_", "+"}).Draw(t, "with") +
				text[at:]
		}
		got, err := belay.ParseCost(text)
		var number json.Number
		want, ok := new(big.Rat), json.Unmarshal([]byte(text), &number) == nil && strings.TrimSpace(text) == text
		if ok {
			_, ok = want.SetString(text) // it refuses exponents of more than six digits, and leaves want undefined then
		}
		if !ok {
			want = new(big.Rat)
		}
		units := new(big.Rat).Mul(want, big.NewRat(10_000, 1))
		ok = ok && units.Sign() >= 0 && units.IsInt() && units.Num().IsInt64()
		if ok != (err == nil) || ok && units.Num().Int64() != int64(got) {
			t.Fatalf("%s is read as %s, %v; a cost: %v", text, got, err, ok)
		}
	})
}

// The texts of costs are as people write them, and every refusal gives its reason.
func TestParseCost(t *testing.T) {
	const most = "922337203685477.5807"
	const (
		number   = "is a number of tokens"
		decimals = "at most four decimals"
		negative = "must not be negative"
		large    = "at most " + most
	)
	for text, want := range map[string]string{
		"0": "0", "12": "12", "0.25": "0.25", "0.0001": "0.0001", "1.50": "1.5", "1.00000": "1",
		"-0": "0", "1e3": "1000", "25e-2": "0.25", "1E+2": "100", "0e999999999999999999999": "0",
		most: most, "9223372036854775807e-4": most,
		"0." + strings.Repeat("0", 5000) + "1e5001": "1", "1" + strings.Repeat("0", 5000) + "e-5000": "1",

		"": number, "NaN": number, "Infinity": number, "x": number, ".5": number, "1.": number,
		"01": number, "+1": number, "1e": number, "1e+": number, "0x10": number, "1_000": number,
		"\t1": number, "1,5": number, "--1": number,
		"0.00001": decimals, "1.23456": decimals, "1e-5": decimals, "1e-999999999999999999999": decimals,
		"-1": negative, "-0.0001": negative, "-1e400": negative,
		"922337203685477.5808": large, "922337203685478": large, "1e15": large, "1e400": large,
		"1e999999999999999999999": large, strings.Repeat("9", 5000): large,
	} {
		got, err := belay.ParseCost(text)
		said := got.String()
		if err != nil {
			said = err.Error()
		}
		if refused := strings.Contains(want, " "); refused != (err != nil) || !strings.Contains(said, want) ||
			!refused && said != want {
			t.Errorf("%.40q is %s, want %s", text, said, want)
		}
		if err != nil && belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%.40q: %v has the code %s", text, err, belay.CodeOf(err))
		}
	}
}

// In JSON only a number is a cost, and null changes nothing.
func TestCostsInJSONAreNumbers(t *testing.T) {
	for _, text := range []string{`"1"`, `true`, `false`, `[1]`, `{"a":1}`} {
		x := belay.Execution{}
		err := json.Unmarshal(fmt.Appendf(nil, `{"cost_tokens":%s}`, text), &x)
		var wrong *json.UnmarshalTypeError
		if !errors.As(err, &wrong) || wrong.Field != "cost_tokens" {
			t.Errorf("%s: %v", text, err)
		}
	}
	x := belay.Execution{CostTokens: 5}
	if err := json.Unmarshal([]byte(`{"cost_tokens":null}`), &x); err != nil || x.CostTokens != 5 {
		t.Errorf("null: %s, %v", x.CostTokens, err)
	}
}

// A sum that is too large becomes the largest cost.
func TestCostsDoNotWrapAround(t *testing.T) {
	for _, got := range []belay.Cost{
		belay.MaxCost.Add(1), belay.Cost(1).Add(belay.MaxCost), belay.MaxCost.Add(belay.MaxCost),
		belay.CostOf(math.MaxInt64), belay.CostOf(922337203685478),
	} {
		if got != belay.MaxCost {
			t.Errorf("%s, want %s", got, belay.MaxCost)
		}
	}
	if got := belay.CostOf(922337203685477); got.String() != "922337203685477" {
		t.Error(got)
	}
	if got := belay.CostOf(math.MinInt64); got != -belay.MaxCost {
		t.Error(got)
	}
	if got := belay.Cost(15_000).Add(2_500); got.String() != "1.75" {
		t.Error(got)
	}
	if got := belay.Cost(-1); got.String() != "-0.0001" {
		t.Error(got)
	}
}
