package uid

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Rule: an id is a UUIDv7 with the given time. The bits that are neither time nor version keep the
// random bytes.
func TestAtIsAUUIDOfItsMoment(t *testing.T) {
	moment := time.UnixMilli(1_770_000_000_123)
	random := [16]byte(bytes.Repeat([]byte{0xff}, 16))
	id := uuid.UUID(At(moment, random))
	if sec, ns := id.Time().UnixTime(); id.Version() != 7 || id.Variant() != uuid.RFC4122 ||
		!time.Unix(sec, ns).Equal(moment) {
		t.Errorf("%s is of version %d, variant %s and of %s, want 7, RFC4122 and %s", id, id.Version(), id.Variant(),
			time.Unix(sec, ns), moment)
	}
	if id[7] != 0xff || id[15] != 0xff {
		t.Errorf("%s has lost random bytes", id)
	}
	if a, b := New(), New(); bytes.Compare(a[:], b[:]) >= 0 {
		t.Errorf("%x comes before %x", a, b)
	}
}
