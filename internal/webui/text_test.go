package webui

import "testing"

func TestSizesInWords(t *testing.T) {
	for n, want := range map[int]string{
		0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1536: "1.5 KiB", 3 << 20: "3.0 MiB",
	} {
		if got := bytesOf(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
