package postgres

import "slices"

// buffer is the memory in which a connection encodes its messages. It is reused from one batch to
// the next: otherwise arrays of a thousand elements, which grow step by step several times a
// millisecond, would be most of the garbage collector's work.
type buffer struct {
	room  []byte // memory for arrays
	taken int    // used part of room
	asked int    // total requested since the last clear, with or without room

	message []byte // encoded bytes that are not written yet
}

// bufferSize is the largest memory that a buffer keeps. The memory of a larger message is released.
const bufferSize = 1 << 20

// array returns memory for n bytes. It is valid until the buffer is cleared. An array that grows
// beyond n moves to memory of its own.
func (d *buffer) array(n int) array {
	d.asked += n
	if n > len(d.room)-d.taken {
		return make(array, 0, n)
	}
	from := d.taken
	d.taken += n
	return d.room[from:from:d.taken]
}

// clear makes all memory available again: the arrays in it have been encoded.
func (d *buffer) clear() {
	if d.asked > len(d.room) && d.asked <= bufferSize {
		d.room = make([]byte, d.asked)
	}
	d.taken, d.asked = 0, 0
}

// reserve is an empty message that makes room for the messages after it. pgx's encoder releases its
// buffer once it is written and begins with a small one; reserve gives it the same buffer again.
type reserve struct {
	*buffer
	size int
}

// Frontend marks a message that a client may send.
func (*reserve) Frontend() {}

// Decode is never called: this process does not read what clients send.
func (*reserve) Decode([]byte) error { return nil }

// Encode returns the buffer with its content and with room for the next messages.
func (r *reserve) Encode(have []byte) ([]byte, error) {
	need := len(have) + r.size
	switch {
	case need <= cap(have):
		return have, nil
	case need > bufferSize:
		return slices.Grow(have, r.size), nil
	case need > cap(r.message):
		r.message = make([]byte, 0, min(bufferSize, need+need/2))
	}
	return append(r.message[:0], have...), nil
}
