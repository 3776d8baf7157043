package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/belaydev/belay"
)

// checkName refuses invalid names: empty where a name is needed, too long, not UTF-8, or with
// control characters, which could forge lines in logs and on terminals.
func checkName(op, what, s string, needed bool) error {
	switch {
	case s == "" && needed:
		return refuse(belay.CodeInvalid, op, "%s is empty; give one", what)
	case len(s) > belay.MaxName:
		return refuse(belay.CodeInvalid, op, "%s has %d bytes; the limit is %d", what, len(s), belay.MaxName)
	case !utf8.ValidString(s):
		return refuse(belay.CodeInvalid, op, "%s is not valid UTF-8", what)
	case strings.ContainsFunc(s, unicode.IsControl):
		return refuse(belay.CodeInvalid, op, "%s contains a control character", what)
	}
	return nil
}

// CheckPayload refuses invalid payloads: text that is not JSON in UTF-8, more bytes than the
// limit, or a NUL anywhere, which databases and C programs cannot carry. An empty payload is
// valid.
func CheckPayload(op, what string, p []byte, limit int) error {
	if len(p) > limit {
		return refuse(belay.CodePayloadTooLarge, op, "%s has %d bytes; the limit is %d", what, len(p), limit)
	}
	if len(p) == 0 {
		return nil
	}
	if !utf8.Valid(p) {
		return refuse(belay.CodeInvalid, op, "%s is not valid UTF-8", what)
	}
	if bad := badCharacter(p); bad != "" {
		return refuse(belay.CodeInvalid, op, "%s contains %s", what, bad)
	}
	if !json.Valid(p) {
		return refuse(belay.CodeInvalid, op, "%s is not JSON", what)
	}
	return nil
}

// badCharacter names a character in JSON text p, written directly or as an escape, that some
// readers of JSON cannot handle: NUL, or half a surrogate pair. It is empty if there is none.
func badCharacter(p []byte) string {
	const nul, surrogate = "a NUL character", "half a surrogate pair"
	if bytes.IndexByte(p, 0) >= 0 {
		return nul
	}
	for {
		i := bytes.IndexByte(p, '\\')
		if i < 0 || i+1 >= len(p) {
			return ""
		}
		p = p[i:]
		unit, ok := escaped(p)
		switch {
		case !ok:
			p = p[2:]
			continue
		case unit == 0:
			return nul
		case utf16.IsSurrogate(unit):
			if low, ok := escaped(p[6:]); !ok || utf16.DecodeRune(unit, low) == utf8.RuneError {
				return surrogate
			}
			p = p[6:]
		}
		p = p[6:]
	}
}

// escaped is the code unit of the escape with which the text begins: \u and four digits.
func escaped(p []byte) (rune, bool) {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(p[2:6]), 16, 16)
	return rune(v), err == nil
}

func checkLabels(op, what string, labels map[string]string) error {
	if len(labels) > belay.MaxLabels {
		return refuse(belay.CodeInvalid, op, "%d %s; the limit is %d", len(labels), what, belay.MaxLabels)
	}
	for k, v := range labels {
		if err := checkName(op, what+" key", k, true); err != nil {
			return err
		}
		if err := checkName(op, fmt.Sprintf("%s %q", what, k), v, false); err != nil {
			return err
		}
	}
	return nil
}

func checkPolicy(op string, p belay.Policy) error {
	for _, d := range []struct {
		name string
		v    belay.Duration
	}{
		{"backoff_base", p.BackoffBase}, {"backoff_cap", p.BackoffCap}, {"scheduled_timeout", p.ScheduledTimeout},
		{"start_timeout", p.StartTimeout}, {"run_timeout", p.RunTimeout}, {"idle_timeout", p.IdleTimeout},
		{"timeout", p.Timeout}, {"cancel_grace", p.CancelGrace}, {"lock_delay", p.LockDelay},
	} {
		if d.v < 0 {
			return refuse(belay.CodeInvalid, op, "%s is negative", d.name)
		}
	}
	if p.MaxAttempts < 0 || p.MaxLosses < 0 {
		return refuse(belay.CodeInvalid, op, "max_attempts and max_losses must not be negative")
	}
	if p.OnLost != "" && p.OnLost != belay.Requeue && p.OnLost != belay.Fail {
		return refuse(belay.CodeInvalid, op, "on_lost is %q; it can be requeue or fail", p.OnLost)
	}
	if p.OnExpired != "" && p.OnExpired != belay.Reschedule && p.OnExpired != belay.FailExpired {
		return refuse(belay.CodeInvalid, op, "on_expired is %q; it can be reschedule or fail", p.OnExpired)
	}
	if p.OnNoWorker != "" && p.OnNoWorker != belay.WaitForWorker && p.OnNoWorker != belay.FailNoWorker {
		return refuse(belay.CodeInvalid, op, "on_no_worker is %q; it can be wait or fail", p.OnNoWorker)
	}
	return nil
}

// clip shortens free text to limit bytes, at the border of a character, and removes control
// characters except newline and tab.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "�")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Limits of the message and the stack of a failure, in bytes.
const (
	maxMessage = 4 << 10
	maxStack   = 16 << 10
)

// CheckName refuses a name with too many bytes, invalid UTF-8 or a control character. An empty name is
// valid.
func CheckName(op, what, s string) error { return checkName(op, what, s, false) }

// CheckLabels refuses labels that no execution can have.
func CheckLabels(op string, labels map[string]string) error { return checkLabels(op, "label", labels) }
