package belay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// alphabet is the alphabet of Crockford's base32. An id is written as a type prefix and the base32
// of its bytes, so that ids sort as their bytes do and a double click selects a whole id.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// ExecutionID names an execution: a UUIDv7, written ex_….
type ExecutionID [16]byte

// WorkerID names a worker's session: a UUIDv7, written wk_….
type WorkerID [16]byte

// OpID identifies one write of a client. If the reply to a write is lost, the client sends the
// write again with the same OpID and gets the first answer again. Any 16 bytes that no other write
// uses are valid, for example random bytes.
type OpID [16]byte

// Secret is the secret part of a lease: 16 random bytes.
type Secret [16]byte

// RunID names a run, one attempt at an execution, written run_…. It contains the execution's id and
// the token of the claim that began the run, so the store needs no index of run ids.
type RunID struct {
	Execution ExecutionID
	Token     Token
}

// Token is the fencing token, a number below 2^53 that grows with every claim of one execution and
// is never reset. Send the token along with writes to other systems, so that they can refuse a
// writer with an older token.
type Token int64

// String writes the id with its prefix.
func (id ExecutionID) String() string { return "ex_" + encode(id[:]) }

// String writes the id with its prefix.
func (id WorkerID) String() string { return "wk_" + encode(id[:]) }

// String writes the operation id, which has no prefix.
func (id OpID) String() string { return encode(id[:]) }

// String writes the id with its prefix.
func (id RunID) String() string {
	b := make([]byte, 24)
	copy(b, id.Execution[:])
	binary.BigEndian.PutUint64(b[16:], uint64(id.Token))
	return "run_" + encode(b)
}

// IsZero reports whether the id is the zero value, which names nothing.
func (id ExecutionID) IsZero() bool { return id == ExecutionID{} }

// IsZero reports whether the id is the zero value, which names nothing.
func (id WorkerID) IsZero() bool { return id == WorkerID{} }

// IsZero reports whether the id is the zero value, which names nothing.
func (id OpID) IsZero() bool { return id == OpID{} }

// IsZero reports whether the id is the zero value, which names nothing.
func (id RunID) IsZero() bool { return id == RunID{} }

// Compare orders ids by their bytes, which is the order in which they were made.
func (id ExecutionID) Compare(other ExecutionID) int { return bytes.Compare(id[:], other[:]) }

// MarshalText writes the id as String does, and the zero id as an empty text.
func (id ExecutionID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// MarshalText writes the id as String does, and the zero id as an empty text.
func (id WorkerID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// MarshalText writes the id as String does, and the zero id as an empty text.
func (id OpID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// MarshalText writes the id as String does, and the zero id as an empty text.
func (id RunID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// UnmarshalText reads what MarshalText wrote.
func (id *ExecutionID) UnmarshalText(b []byte) error { return parse(string(b), "ex_", id[:]) }

// UnmarshalText reads what MarshalText wrote.
func (id *WorkerID) UnmarshalText(b []byte) error { return parse(string(b), "wk_", id[:]) }

// UnmarshalText reads what MarshalText wrote.
func (id *OpID) UnmarshalText(b []byte) error { return parse(string(b), "", id[:]) }

// UnmarshalText reads what MarshalText wrote.
func (id *RunID) UnmarshalText(b []byte) error {
	var raw [24]byte
	if err := parse(string(b), "run_", raw[:]); err != nil {
		return err
	}
	id.Execution = ExecutionID(raw[:16])
	id.Token = Token(binary.BigEndian.Uint64(raw[16:]))
	return nil
}

// MarshalText hides the secret, so that no JSON contains it by accident.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// String hides the secret, so that no log line shows it.
func (Secret) String() string { return "***" }

// Format hides the secret with every verb of package fmt.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// ParseExecutionID reads an execution's id as String writes it.
func ParseExecutionID(s string) (ExecutionID, error) {
	var id ExecutionID
	if s == "" {
		return id, malformed("execution id", s, "ex_")
	}
	err := parse(s, "ex_", id[:])
	return id, err
}

// ParseWorkerID reads a worker's id as String writes it.
func ParseWorkerID(s string) (WorkerID, error) {
	var id WorkerID
	if s == "" {
		return id, malformed("worker id", s, "wk_")
	}
	err := parse(s, "wk_", id[:])
	return id, err
}

// ChildID returns the id of the child that the given generation of the parent starts under key. The
// id is computed from these three values, so that a parent that repeats the call after a crash
// finds the same child. Ids of children whose keys end with a number, such as "part[12]", sort
// about in the order of the numbers, so that a table stores them together.
func ChildID(parent ExecutionID, generation int, key string) ExecutionID {
	h := sha256.New()
	h.Write(parent[:])
	_ = binary.Write(h, binary.BigEndian, int64(generation))
	h.Write([]byte(key))
	id := ExecutionID(h.Sum(nil)[:16])
	copy(id[:6], parent[:6]) // the parent's timestamp, so that the table stores children near their parent
	if n, ok := trailingNumber(key); ok {
		binary.BigEndian.PutUint16(id[6:], uint16(n>>2)&0x0fff) // four children share a place
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// trailingNumber returns the number at the end of a key, which may be in brackets.
func trailingNumber(key string) (n uint64, ok bool) {
	key = strings.TrimSuffix(key, "]")
	digits := len(key)
	for digits > 0 && '0' <= key[digits-1] && key[digits-1] <= '9' {
		digits--
	}
	n, err := strconv.ParseUint(key[digits:], 10, 64)
	return n, err == nil
}

func text(zero bool, id fmt.Stringer) ([]byte, error) {
	if zero {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// encode writes b in base32, most significant bits first, padded at the front to a multiple of five
// bits.
func encode(b []byte) string {
	n := (len(b)*8 + 4) / 5
	out := make([]byte, n)
	var acc uint
	var bits int
	i := n
	for j := len(b) - 1; j >= 0; j-- {
		acc |= uint(b[j]) << bits
		bits += 8
		for bits >= 5 {
			i--
			out[i] = alphabet[acc&31]
			acc >>= 5
			bits -= 5
		}
	}
	if bits > 0 {
		i--
		out[i] = alphabet[acc&31]
	}
	return string(out)
}

// parse reads the id s, which encode wrote after the prefix, into dst. The empty string is the zero
// id.
func parse(s, prefix string, dst []byte) error {
	clear(dst)
	if s == "" {
		return nil
	}
	body, ok := strings.CutPrefix(s, prefix)
	if !ok || len(body) != (len(dst)*8+4)/5 {
		return malformed("id", s, prefix)
	}
	var acc uint
	var bits int
	i := len(dst)
	for j := len(body) - 1; j >= 0; j-- {
		v := strings.IndexByte(alphabet, body[j])
		if v < 0 {
			return malformed("id", s, prefix)
		}
		acc |= uint(v) << bits
		bits += 5
		for bits >= 8 && i > 0 {
			i--
			dst[i] = byte(acc)
			acc >>= 8
			bits -= 8
		}
	}
	if i != 0 || acc != 0 {
		return malformed("id", s, prefix)
	}
	return nil
}

func malformed(what, s, prefix string) error {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return &Error{
		Code: CodeMalformed, Message: fmt.Sprintf("%s %q is not valid: it must have the form %s…", what, s, prefix),
	}
}
