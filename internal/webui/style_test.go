package webui

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var colour = regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`)

// palettes returns the colours of the light and of the dark style.
func palettes(t *testing.T) map[string]map[string]string {
	t.Helper()
	sheet := string(newAsset("assets/belay.css", "").data)
	light, dark, ok := strings.Cut(sheet, "prefers-color-scheme: dark")
	if !ok {
		t.Fatal("the style sheet has no dark palette")
	}
	all := make(map[string]map[string]string)
	for name, part := range map[string]string{"light": light, "dark": dark} {
		all[name] = make(map[string]string)
		for _, m := range colour.FindAllStringSubmatch(part, -1) {
			all[name][m[1]] = m[2]
		}
	}
	return all
}

// The contrast of every text with its background is at least 4.5 to 1, as WCAG 2.2 requires
// (1.4.3). The contrast of the bars in a picture is at least 3 to 1 (1.4.11).
func TestTheContrastIsSufficient(t *testing.T) {
	for scheme, p := range palettes(t) {
		for _, c := range []struct {
			front, back string
			least       float64
		}{
			{"ink", "paper", 4.5},
			{"ink", "card", 4.5},
			{"soft", "paper", 4.5},
			{"soft", "card", 4.5},
			{"link", "paper", 4.5},
			{"link", "card", 4.5},
			{"ink", "rest-bg", 4.5},
			{"ink", "good-bg", 4.5},
			{"ink", "bad-bg", 4.5},
			{"ink", "busy-bg", 4.5},
			{"ink", "hold-bg", 4.5},
			{"good", "good-bg", 4.5},
			{"bad", "bad-bg", 4.5},
			{"busy", "busy-bg", 4.5},
			{"hold", "hold-bg", 4.5},
			{"rest", "rest-bg", 4.5},
			{"good", "card", 4.5},
			{"bad", "card", 4.5},
			{"busy", "card", 4.5},
			{"hold", "card", 4.5},
			{"rest", "card", 3},
		} {
			got := contrast(t, p[c.front], p[c.back])
			if got < c.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want at least %.1f", scheme, c.front, c.back, got,
					c.least)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance is the relative luminance of a colour as WCAG defines it.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatalf("colour %q: %v", hex, err)
	}
	part := func(shift uint, weight float64) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return weight * c / 12.92
		}
		return weight * math.Pow((c+0.055)/1.055, 2.4)
	}
	return part(16, 0.2126) + part(8, 0.7152) + part(0, 0.0722)
}
