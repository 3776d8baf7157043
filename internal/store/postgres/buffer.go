package postgres

import "slices"

// buffer is the memory in which a connection encodes its messages. All batches of the connection
// use the same memory. If each batch allocated new arrays of a thousand elements, several times a
// millisecond, these arrays would cause most of the garbage collector's work.
type buffer struct {
	room  []byte // memory for arrays
	taken int    // used part of room
	asked int    // bytes requested since the last clear, also those for which there was no room

	message []byte // encoded bytes that are not written yet
}

// bufferSize is the largest memory that a buffer keeps. The memory of a larger message is released.
const bufferSize = 1 << 20

// array returns memory for n bytes, which is valid until the buffer is cleared. An array that grows
// beyond n bytes gets separate memory.
func (d *buffer) array(n int) array {
	d.asked += n
	if n > len(d.room)-d.taken {
		return make(array, 0, n)
	}
	from := d.taken
	d.taken += n
	return d.room[from:from:d.taken]
}

// clear makes all memory available again. The caller must not use the arrays in it any more.
func (d *buffer) clear() {
	if d.asked > len(d.room) && d.asked <= bufferSize {
		d.room = make([]byte, d.asked)
	}
	d.taken, d.asked = 0, 0
}

// reserve is a message without content, which enlarges the buffer of pgx's encoder for the messages
// after it. The encoder releases its buffer after each write and begins again with a small buffer;
// reserve makes the encoder use the same large buffer again.
type reserve struct {
	*buffer
	size int
}

// Frontend marks a message that a client may send.
func (*reserve) Frontend() {}

// Decode is never called: this process does not read what clients send.
func (*reserve) Decode([]byte) error { return nil }

// Encode returns the encoder's buffer with its content (have), enlarged for the next messages.
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
