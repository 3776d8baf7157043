package postgres

import "slices"

// desk is where a connection puts its messages together. It keeps the room from
// one batch to the next: arrays of a thousand elements that grow step by step,
// several times a millisecond, are most of what a collector would have to do.
type desk struct {
	room  []byte // where arrays are filled
	taken int    // of it
	asked int    // since the last clearing, whether there was room or not

	message []byte // what is encoded, until it is written
}

// most that a desk keeps. A message may be larger; its room is let go.
const deskSize = 1 << 20

// array is a place for so many bytes. It is valid until the desk is cleared, and
// moves to a place of its own if it grows beyond them.
func (d *desk) array(n int) array {
	d.asked += n
	if n > len(d.room)-d.taken {
		return make(array, 0, n)
	}
	from := d.taken
	d.taken += n
	return d.room[from:from:d.taken]
}

// clear takes all places back: what was in them has been encoded.
func (d *desk) clear() {
	if d.asked > len(d.room) && d.asked <= deskSize {
		d.room = make([]byte, d.asked)
	}
	d.taken, d.asked = 0, 0
}

// reserve is a message of no bytes that makes room for those after it. The
// encoder lets go of any buffer once it is written and begins with a small one;
// here it gets the same one again.
type reserve struct {
	*desk
	size int
}

// Frontend marks what a client may send.
func (*reserve) Frontend() {}

// Decode is never called: nobody reads what a client sends.
func (*reserve) Decode([]byte) error { return nil }

// Encode gives the buffer with all that it holds, and with room.
func (r *reserve) Encode(have []byte) ([]byte, error) {
	need := len(have) + r.size
	switch {
	case need <= cap(have):
		return have, nil
	case need > deskSize:
		return slices.Grow(have, r.size), nil
	case need > cap(r.message):
		r.message = make([]byte, 0, min(deskSize, need+need/2))
	}
	return append(r.message[:0], have...), nil
}
