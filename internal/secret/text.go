package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// Text is a secret in memory. Package fmt, encoders of JSON and YAML, and package log/slog write *** in its place; only
// Reveal shows it. A struct protects a Text only in an exported field, because package fmt cannot call the methods of
// others.
type Text string

const shown = "***"

// Reveal returns the secret.
func (t Text) Reveal() string { return string(t) }

// String hides the secret.
func (Text) String() string { return shown }

// Format hides the secret with every verb.
func (Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, shown) }

// MarshalText hides the secret.
func (Text) MarshalText() ([]byte, error) { return []byte(shown), nil }

// LogValue hides the secret.
func (Text) LogValue() slog.Value { return slog.StringValue(shown) }
