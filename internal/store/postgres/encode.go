package postgres

import (
	"encoding/binary"

	"github.com/belaydev/belay/internal/store/table"
)

// The object ids (OIDs) of PostgreSQL's types for the elements of arrays.
const (
	oidBool  = 16
	oidBytea = 17
	oidInt8  = 20
	oidInt2  = 21
	oidInt4  = 23
	oidText  = 25
	oidUUID  = 2950
)

// null is the length that PostgreSQL's binary format uses for NULL.
const null = 0xffffffff

// array is a one-dimensional array in PostgreSQL's binary format.
type array []byte

// array begins an array of n elements of a type, each of about the given size.
func (s *step) array(oid uint32, n, size int) array {
	a := s.buffer.array(20 + n*(4+size))
	if n == 0 {
		a = be(a, 0) // number of dimensions of an empty array
		a = be(a, 0)
		return be(a, oid)
	}
	a = be(a, 1) // number of dimensions
	a = be(a, 1) // the array may have NULLs
	a = be(a, oid)
	a = be(a, uint32(n))
	return be(a, 1) // indexes begin at 1
}

// column adds an array as an argument. If every element is NULL (some is false), column sends an
// empty array, which costs less: the function unnest, when it gets several arrays, extends the
// shorter arrays with NULL.
func (s *step) column(a array, oid uint32, some bool) {
	if !some {
		a = s.array(oid, 0, 0)
	}
	s.params = append(s.params, a)
}

func be(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }

func (a array) null() array { return be(a, null) }

func (a array) bytes(v []byte) array { return append(be(a, uint32(len(v))), v...) }

func (a array) text(v string) array { return append(be(a, uint32(len(v))), v...) }

// int adds an integer of the given width in bytes: 1 for a boolean.
func (a array) int(v int64, width int) array {
	a = be(a, uint32(width))
	switch width {
	case 1:
		return append(a, byte(v))
	case 2:
		return binary.BigEndian.AppendUint16(a, uint16(v))
	case 4:
		return be(a, uint32(v))
	}
	return binary.BigEndian.AppendUint64(a, uint64(v))
}

// integer describes a kind of integer column.
type integer struct {
	oid   uint32
	width int
	zero  bool // zero is the value 0, not NULL
}

// int8s are bigints in which zero is not NULL.
var int8s = integer{oidInt8, 8, true}

// integerOf describes a table's integer column.
func integerOf(kind table.Kind, zero table.Zero) integer {
	k := integer{zero: zero == table.Kept}
	switch kind {
	case table.Boolean:
		k.oid, k.width = oidBool, 1
	case table.Int2:
		k.oid, k.width = oidInt2, 2
	case table.Int4:
		k.oid, k.width = oidInt4, 4
	default:
		k.oid, k.width = oidInt8, 8
	}
	return k
}

// bind adds the columns of a table's rows to a statement's arguments.
func bind[R any](s *step, t *table.Table[R], rows []*R) *step {
	for i := range t.Columns {
		bindColumn(s, &t.Columns[i], rows, func(r *R) *R { return r })
	}
	return s
}

// bindColumn adds one column to a statement's arguments. of returns the row of the table that an
// element of rows contains.
func bindColumn[R, H any](s *step, c *table.Column[R], rows []H, of func(H) *R) {
	kept := c.Zero == table.Kept
	switch c.Kind {
	case table.String:
		a, some := s.array(oidText, len(rows), 16), kept
		for _, r := range rows {
			if v := c.Text(of(r)); v == "" && !kept {
				a = a.null()
			} else {
				a, some = a.text(v), true
			}
		}
		s.column(a, oidText, some)
	case table.UUID:
		a, some := s.array(oidUUID, len(rows), 16), kept
		for _, r := range rows {
			if v := c.Bytes(of(r)); !kept && [16]byte(v) == ([16]byte{}) {
				a = a.null()
			} else {
				a, some = a.bytes(v), true
			}
		}
		s.column(a, oidUUID, some)
	case table.Bytes:
		byteas(s, rows, kept, func(h H) []byte { return c.Bytes(of(h)) })
	default:
		ints(s, integerOf(c.Kind, c.Zero), rows, func(h H) int64 { return c.Int(of(h)) })
	}
}

// ints adds a column of integers to a statement's arguments.
func ints[R any](s *step, k integer, rows []R, of func(R) int64) {
	a, some := s.array(k.oid, len(rows), k.width), k.zero
	for _, r := range rows {
		if v := of(r); v == 0 && !k.zero {
			a = a.null()
		} else {
			a, some = a.int(v, k.width), true
		}
	}
	s.column(a, k.oid, some)
}

// uuids adds a column of ids to a statement's arguments; a zero id is NULL.
func uuids[R any](s *step, rows []R, of func(R) [16]byte) {
	a, some := s.array(oidUUID, len(rows), 16), false
	for _, r := range rows {
		if v := of(r); v == ([16]byte{}) {
			a = a.null()
		} else {
			a, some = a.bytes(v[:]), true
		}
	}
	s.column(a, oidUUID, some)
}

// idList adds a list of ids to a statement's arguments; zero ids are sent as they are.
func idList[ID ~[16]byte](s *step, all []ID) {
	a := s.array(oidUUID, len(all), 16)
	for i := range all {
		a = a.bytes(all[i][:])
	}
	s.params = append(s.params, a)
}

// texts adds a column of texts to a statement's arguments.
func texts[R any](s *step, rows []R, of func(R) string) {
	a := s.array(oidText, len(rows), 16)
	for _, r := range rows {
		a = a.text(of(r))
	}
	s.params = append(s.params, a)
}

// byteas adds a column of bytes to a statement's arguments; empty values are NULL unless kept is
// set.
func byteas[R any](s *step, rows []R, kept bool, of func(R) []byte) {
	size := 0
	for _, r := range rows {
		size += len(of(r))
	}
	a, some := s.array(oidBytea, len(rows), size/max(1, len(rows))), kept || size > 0
	for _, r := range rows {
		if v := of(r); len(v) == 0 && !kept {
			a = a.null()
		} else {
			a = a.bytes(v)
		}
	}
	s.column(a, oidBytea, some)
}

// int adds one bigint to a statement's arguments.
func (s *step) int(v int64) *step {
	s.params = append(s.params, binary.BigEndian.AppendUint64(nil, uint64(v)))
	return s
}

// id adds one id to a statement's arguments.
func (s *step) id(v [16]byte) *step {
	s.params = append(s.params, v[:])
	return s
}

// string adds one text to a statement's arguments.
func (s *step) string(v string) *step {
	s.params = append(s.params, []byte(v))
	return s
}
