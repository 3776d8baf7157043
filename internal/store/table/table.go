// Package table describes the tables of the SQL stores: the columns, how a row is read into its
// struct, and which values are written. Each store adds the statements in its own dialect.
package table

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Kind is the type of a column.
type Kind uint8

// The types of columns. SQLite stores the first four as INTEGER, and the last two as BLOB.
const (
	Boolean Kind = iota
	Int2
	Int4
	Int8
	String
	UUID
	Bytes
)

// Zero says how a column stores the zero value.
type Zero uint8

// The ways to store the zero value: Kept as the value itself, Null as NULL, and Lean as NULL in
// PostgreSQL only, where NULL takes no space.
const (
	Kept Zero = iota
	Lean
	Null
)

// Column is a column and its field in a row struct. Only one of the functions Int, Text and Bytes
// is set, depending on the column's type.
type Column[R any] struct {
	Name string
	Kind Kind
	Zero Zero

	Int   func(*R) int64
	Text  func(*R) string
	Bytes func(*R) []byte

	setInt   func(*R, int64)
	setText  func(*R, string) error
	setBytes func(*R, []byte) // nil for a field of fixed size, for which Bytes returns the field itself
}

// Table is a table, or some of its columns.
type Table[R any] struct {
	Name    string
	Columns []Column[R]
}

// Names returns the names of the columns, as a list for a statement.
func (t *Table[R]) Names() string {
	names := make([]string, len(t.Columns))
	for i := range t.Columns {
		names[i] = t.Columns[i].Name
	}
	return strings.Join(names, ", ")
}

// First returns the table with only its first n columns; if n is negative, without its last -n
// columns.
func (t *Table[R]) First(n int) *Table[R] {
	if n < 0 {
		n += len(t.Columns)
	}
	return &Table[R]{t.Name, t.Columns[:n]}
}

// Only returns the table with only the named columns, in this order.
func (t *Table[R]) Only(names string) *Table[R] {
	some := &Table[R]{Name: t.Name}
	for name := range strings.SplitSeq(names, ", ") {
		found := false
		for _, c := range t.Columns {
			if c.Name == name {
				some.Columns, found = append(some.Columns, c), true
			}
		}
		if !found {
			panic(fmt.Sprintf("table %s has no column %s", t.Name, name))
		}
	}
	return some
}

// Row is a row of a result. NULL is read as zero. The bytes of Raw may share memory with the
// result, the bytes of Blob may not. Word is for texts that occur in many rows: equal texts may
// share memory.
type Row interface {
	Int(i int) int64
	Text(i int) string
	Word(i int) string
	Raw(i int) []byte
	Blob(i int) []byte
}

// Scan reads a row that begins with the columns of a table.
func Scan[R any, C Row](t *Table[R], row C) (*R, error) {
	r := new(R)
	for i := range t.Columns {
		switch c := &t.Columns[i]; {
		case c.setInt != nil:
			c.setInt(r, row.Int(i))
		case c.setText != nil:
			if err := c.setText(r, row.Text(i)); err != nil {
				return nil, fmt.Errorf("read column %s of %s: %w", c.Name, t.Name, err)
			}
		case c.setBytes != nil:
			c.setBytes(r, row.Blob(i))
		case c.Bytes != nil:
			copy(c.Bytes(r), row.Raw(i))
		}
	}
	return r, nil
}

// Into returns a function that reads rows of a table and appends them to a list.
func Into[R any, C Row](t *Table[R], all *[]*R) func(C) error {
	return func(row C) error {
		r, err := Scan(t, row)
		if err == nil {
			*all = append(*all, r)
		}
		return err
	}
}

// Values is Into for a list of structs instead of pointers.
func Values[R any, C Row](t *Table[R], all *[]R) func(C) error {
	return func(row C) error {
		r, err := Scan(t, row)
		if err == nil {
			*all = append(*all, *r)
		}
		return err
	}
}

// integer is a column of integers.
func integer[R any, V ~int | ~int64 | ~uint8](name string, kind Kind, zero Zero, of func(*R) *V) Column[R] {
	return Column[R]{
		Name: name, Kind: kind, Zero: zero,
		Int: func(r *R) int64 { return int64(*of(r)) }, setInt: func(r *R, v int64) { *of(r) = V(v) },
	}
}

// A cost is in two columns: the whole tokens, and the rest in ten-thousandths of a token. Servers
// of a version without the second column read and add whole tokens, and leave the rest as it is.
func wholeCost[R any](of func(*R) *belay.Cost) Column[R] {
	return Column[R]{
		Name: "cost", Kind: Int8, Zero: Lean,
		Int:    func(r *R) int64 { whole, _ := of(r).Tokens(); return whole },
		setInt: func(r *R, v int64) { *of(r) = of(r).Add(belay.CostOf(v)) },
	}
}

func restOfCost[R any](of func(*R) *belay.Cost) Column[R] {
	return Column[R]{
		Name: "cost_rest", Kind: Int2, Zero: Lean,
		Int:    func(r *R) int64 { _, rest := of(r).Tokens(); return rest },
		setInt: func(r *R, v int64) { *of(r) = of(r).Add(belay.Cost(v)) },
	}
}

func boolean[R any](name string, of func(*R) *bool) Column[R] {
	return Column[R]{
		Name: name, Kind: Boolean, Zero: Lean,
		Int: func(r *R) int64 { return Number(*of(r)) }, setInt: func(r *R, v int64) { *of(r) = v != 0 },
	}
}

func text[R any, V ~string](name string, zero Zero, of func(*R) *V) Column[R] {
	return Column[R]{
		Name: name, Kind: String, Zero: zero,
		Text: func(r *R) string {
			return string(*of(r))
		}, setText: func(r *R, v string) error { *of(r) = V(v); return nil },
	}
}

// labels is a column of labels, stored as JSON.
func labels[R any](name string, of func(*R) *map[string]string) Column[R] {
	return Column[R]{
		Name: name, Kind: String, Zero: Null,
		Text: func(r *R) string { return LabelsText(*of(r)) },
		setText: func(r *R, v string) (err error) {
			*of(r), err = ParseLabels(v)
			return err
		},
	}
}

// notes is a column of notes, stored as JSON.
func notes[R any](name string, of func(*R) *[]machine.LetterNote) Column[R] {
	return Column[R]{
		Name: name, Kind: String, Zero: Null,
		Text: func(r *R) string {
			if len(*of(r)) == 0 {
				return ""
			}
			b, err := json.Marshal(*of(r))
			if err != nil {
				panic(err) // texts, times and ids can always be encoded
			}
			return string(b)
		},
		setText: func(r *R, v string) error {
			if v == "" {
				return nil
			}
			return json.Unmarshal([]byte(v), of(r))
		},
	}
}

// id is a column of ids: of returns the bytes of the field.
func id[R any](name string, zero Zero, of func(*R) []byte) Column[R] {
	return Column[R]{Name: name, Kind: UUID, Zero: zero, Bytes: of}
}

func hash[R any](name string, of func(*R) []byte) Column[R] {
	return Column[R]{Name: name, Kind: Bytes, Bytes: of}
}

func blob[R any](name string, of func(*R) *[]byte) Column[R] {
	return Column[R]{
		Name: name, Kind: Bytes, Zero: Null,
		Bytes: func(r *R) []byte { return *of(r) }, setBytes: func(r *R, v []byte) { *of(r) = v },
	}
}

// kept makes a column store its zero value as the value itself.
func kept[R any](c Column[R]) Column[R] {
	c.Zero = Kept
	return c
}

// ParseLabels decodes stored labels.
func ParseLabels(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	var labels map[string]string
	if err := json.Unmarshal([]byte(text), &labels); err != nil {
		return nil, fmt.Errorf("read labels: %w", err)
	}
	return labels, nil
}

// LabelsText encodes labels for the table; empty for none.
func LabelsText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	b, err := json.Marshal(labels)
	if err != nil {
		panic(err) // maps of strings can always be encoded
	}
	return string(b)
}

// Parsed caches decoded JSON texts that occur in many rows or are read often. The values are
// shared and never changed in place.
type Parsed[T any] map[string]*T

// Parse decodes a text, or finds it in the cache; nil for an empty text.
func Parse[T any, S string | []byte](p *Parsed[T], what string, text S) (*T, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if known := (*p)[string(text)]; known != nil {
		return known, nil
	}
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if *p == nil || len(*p) >= 1000 {
		*p = make(Parsed[T])
	}
	(*p)[string(text)] = v
	return v, nil
}

// Number is 1 for true and 0 for false.
func Number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
