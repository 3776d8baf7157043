package belay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// ids are written as a type prefix and Crockford base32 of their bytes, so that
// they sort as their bytes do and a double click selects the whole of one.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// ExecutionID names an execution: a UUIDv7, written ex_….
type ExecutionID [16]byte

// WorkerID names a worker's session: a UUIDv7, written wk_….
type WorkerID [16]byte

// OpID names one write of a client, so that asking again after a lost reply
// gets the first answer again. Any 16 bytes that do not repeat will do.
type OpID [16]byte

// Secret is the half of a lease that cannot be guessed.
type Secret [16]byte

// RunID names one attempt at an execution, written run_…. It holds the
// execution and the token of the claim that began it, and so needs no index.
type RunID struct {
	Execution ExecutionID
	Token     Token
}

// Token is the fencing token: epoch·2^32 + n, below 2^53 and strictly
// increasing with every claim of one execution, for ever. Hand it to whatever
// the outside world offers to refuse a stale writer.
type Token int64

// String writes the id with its prefix.
func (id ExecutionID) String() string { return "ex_" + encode(id[:]) }

// String writes the id with its prefix.
func (id WorkerID) String() string { return "wk_" + encode(id[:]) }

// String writes the operation id without a prefix: it is not a noun of its own.
func (id OpID) String() string { return encode(id[:]) }

// String writes the id with its prefix.
func (id RunID) String() string {
	b := make([]byte, 24)
	copy(b, id.Execution[:])
	binary.BigEndian.PutUint64(b[16:], uint64(id.Token))
	return "run_" + encode(b)
}

// IsZero reports whether the id names nothing.
func (id ExecutionID) IsZero() bool { return id == ExecutionID{} }

// IsZero reports whether the id names nothing.
func (id WorkerID) IsZero() bool { return id == WorkerID{} }

// IsZero reports whether the id names nothing.
func (id OpID) IsZero() bool { return id == OpID{} }

// IsZero reports whether the id names nothing.
func (id RunID) IsZero() bool { return id == RunID{} }

// Compare orders ids as their bytes, which is the order of their making.
func (id ExecutionID) Compare(other ExecutionID) int { return bytes.Compare(id[:], other[:]) }

// MarshalText writes the id as String does; the zero id is empty.
func (id ExecutionID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// MarshalText writes the id as String does; the zero id is empty.
func (id WorkerID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// MarshalText writes the id as String does; the zero id is empty.
func (id OpID) MarshalText() ([]byte, error) { return text(id.IsZero(), id) }

// MarshalText writes the id as String does; the zero id is empty.
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

// MarshalText hides the secret: it leaves the process on purpose only.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// String hides the secret, so that no log line shows it.
func (Secret) String() string { return "***" }

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

// ChildID is the id of the child that the parent's generation starts under key:
// the same call made again after a crash finds the same child.
func ChildID(parent ExecutionID, generation int, key string) ExecutionID {
	h := sha256.New()
	h.Write(parent[:])
	_ = binary.Write(h, binary.BigEndian, int64(generation))
	h.Write([]byte(key))
	id := ExecutionID(h.Sum(nil)[:16])
	copy(id[:6], parent[:6]) // the parent's time keeps children near it in the table
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

func text(zero bool, id fmt.Stringer) ([]byte, error) {
	if zero {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// encode writes b, most significant bits first, padded at the front to a
// multiple of five bits.
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

// parse reads s into dst; the empty string is the zero id.
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
		Code: CodeMalformed, Message: fmt.Sprintf("%s %q is not of the form %s… that Belay writes", what, s, prefix),
	}
}
