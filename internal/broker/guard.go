package broker

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"slices"
)

// guard stands between a connection and the library, and changes the messages that could harm this process. A user who
// may write to a foreign queue can send a message that the library cannot read, which ends the connection each time it
// is delivered, and a classic queue delivers it for ever. Such a user can also send bodies of 128 MiB, of which the
// library would keep as many in memory as the consumer's prefetch allows.
//
// guard reads the frames that RabbitMQ sends (AMQP 0-9-1, section 4.2). In a content header that the library cannot
// read, it replaces the headers of the message by a mark. It does the same if the body is larger than most, and leaves
// out the frames of the body. All other bytes pass unchanged.
type guard struct {
	net.Conn
	in   *bufio.Reader
	most uint64 // the largest body, in bytes

	out     []byte            // bytes that the next Read returns
	through int64             // how many bytes of the present frame pass unread
	skip    map[uint16]uint64 // how many bytes of a body are left out, by channel
	foreign bool              // these are not the frames of AMQP, and all bytes pass
}

// The types of frames, and the sizes of their parts.
const (
	methodFrame, headerFrame, bodyFrame, heartbeatFrame = 1, 2, 3, 8

	frameHead, frameEnd = 7, 1
	// contentHead is the size of the fixed part of a content header: class, weight, size of the body and flags.
	contentHead = 2 + 2 + 8 + 2
	// maxHeaderFrame is the largest content header that guard reads. RabbitMQ sends no frame larger than 128 KiB.
	maxHeaderFrame = 1 << 20
)

// The flags of a content header that guard reads.
const flagContentType, flagContentEncoding, flagHeaders = 0x8000, 0x4000, 0x2000

// guardMark is the header with which guard replaces the headers of a message. Its value is the Reason. A sender can set
// it too, and then only its own message is refused.
const guardMark = "x-belay-guard"

func newGuard(c net.Conn, most uint64) *guard {
	return &guard{Conn: c, in: bufio.NewReaderSize(c, 64<<10), most: most, skip: make(map[uint16]uint64)}
}

// Read implements io.Reader.
func (g *guard) Read(p []byte) (int, error) {
	for len(p) > 0 {
		switch {
		case len(g.out) > 0:
			n := copy(p, g.out)
			g.out = g.out[n:]
			return n, nil
		case g.through > 0:
			n, err := g.in.Read(p[:min(int64(len(p)), g.through)])
			g.through -= int64(n)
			return n, err
		case g.foreign:
			return g.in.Read(p)
		}
		if err := g.frame(); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// frame reads the beginning of a frame, and the whole frame if it is a content header.
func (g *guard) frame() error {
	head := make([]byte, frameHead)
	if _, err := io.ReadFull(g.in, head[:1]); err != nil {
		return err
	}
	switch head[0] {
	case methodFrame, headerFrame, bodyFrame, heartbeatFrame:
	default:
		g.foreign, g.out = true, head[:1]
		return nil
	}
	if _, err := io.ReadFull(g.in, head[1:]); err != nil {
		return err
	}
	channel, size := binary.BigEndian.Uint16(head[1:]), binary.BigEndian.Uint32(head[3:])
	if head[0] == methodFrame { // the content before it has ended, or its channel has
		delete(g.skip, channel)
	}
	left := g.skip[channel]
	switch {
	case head[0] == bodyFrame && left > 0:
		if g.skip[channel] = left - min(left, uint64(size)); g.skip[channel] == 0 {
			delete(g.skip, channel)
		}
		_, err := io.CopyN(io.Discard, g.in, int64(size)+frameEnd)
		return err
	case head[0] != headerFrame || size > maxHeaderFrame:
		g.out, g.through = head, int64(size)+frameEnd
		return nil
	}
	content := make([]byte, size+frameEnd)
	if _, err := io.ReadFull(g.in, content); err != nil {
		return err
	}
	end := content[size]
	content = g.content(channel, content[:size])
	binary.BigEndian.PutUint32(head[3:], uint32(len(content)))
	g.out = slices.Concat(head, content, []byte{end})
	return nil
}

// content returns a content header as the library gets it.
func (g *guard) content(channel uint16, b []byte) []byte {
	if len(b) < contentHead {
		return b // the library ends the connection
	}
	before, table, after, ok := splitContent(b)
	size := binary.BigEndian.Uint64(b[4:])
	var mark Reason
	switch {
	case size > g.most:
		mark = TooLarge
		g.skip[channel] = size
		size = 0
	case !ok || !readable(table):
		mark = Unreadable
	default:
		return b
	}
	flags := binary.BigEndian.Uint16(b[12:]) | flagHeaders
	if !ok {
		flags, before, after = flagHeaders, nil, nil
	}
	out := append([]byte(nil), b[:4]...)
	out = binary.BigEndian.AppendUint64(out, size)
	out = binary.BigEndian.AppendUint16(out, flags)
	out = append(append(out, before...), marked(mark)...)
	return append(out, after...)
}

// marked is a table with the mark, and with its size before it.
func marked(r Reason) []byte {
	field := append([]byte{byte(len(guardMark))}, guardMark...)
	field = append(field, 'S')
	field = binary.BigEndian.AppendUint32(field, uint32(len(r)))
	field = append(field, r...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(field))), field...)
}

// splitContent splits the properties of a content header: those before the headers, the table of the headers without
// its size, and those after. It reports false if the header ends too early.
func splitContent(b []byte) (before, table, after []byte, ok bool) {
	flags := binary.BigEndian.Uint16(b[12:])
	r := fields(b[contentHead:])
	for _, flag := range []uint16{flagContentType, flagContentEncoding} {
		if flags&flag != 0 {
			if _, ok = r.short(); !ok {
				return nil, nil, nil, false
			}
		}
	}
	before = b[contentHead : len(b)-len(r)]
	if flags&flagHeaders != 0 {
		if table, ok = r.long(); !ok {
			return nil, nil, nil, false
		}
	}
	return before, table, r, true
}

// The limits of the library for tables and lists.
const maxNesting, maxElements = 32, 8192

// readable reports whether the library can read a table.
func readable(table []byte) bool {
	r := fields(table)
	return r.table(0)
}

// fields reads the fields of AMQP.
type fields []byte

// take takes n bytes.
func (f *fields) take(n uint64) ([]byte, bool) {
	if n > uint64(len(*f)) {
		return nil, false
	}
	b := (*f)[:n]
	*f = (*f)[n:]
	return b, true
}

// short takes a text with its length in one byte before it.
func (f *fields) short() ([]byte, bool) {
	n, ok := f.take(1)
	if !ok {
		return nil, false
	}
	return f.take(uint64(n[0]))
}

// long takes bytes with their length in four bytes before them.
func (f *fields) long() ([]byte, bool) {
	n, ok := f.take(4)
	if !ok {
		return nil, false
	}
	return f.take(uint64(binary.BigEndian.Uint32(n)))
}

// table reads all of f as a table that depth others contain.
func (f *fields) table(depth int) bool {
	for n := 0; len(*f) > 0; n++ {
		if _, ok := f.short(); !ok || n >= maxElements || !f.value(depth) {
			return false
		}
	}
	return depth <= maxNesting
}

// list reads all of f as a list.
func (f *fields) list(depth int) bool {
	for n := 0; len(*f) > 0; n++ {
		if n >= maxElements || !f.value(depth) {
			return false
		}
	}
	return depth <= maxNesting
}

// value takes a value with its type before it.
func (f *fields) value(depth int) bool {
	kind, ok := f.take(1)
	if !ok || depth > maxNesting {
		return false
	}
	size := uint64(0)
	switch kind[0] {
	case 'V':
	case 't', 'b', 'B':
		size = 1
	case 's', 'u':
		size = 2
	case 'I', 'i', 'f':
		size = 4
	case 'D':
		size = 5
	case 'l', 'd', 'T':
		size = 8
	case 'S', 'x':
		_, ok := f.long()
		return ok
	case 'F', 'A':
		inner, ok := f.long()
		nested := fields(inner)
		if kind[0] == 'F' {
			return ok && nested.table(depth+1)
		}
		return ok && nested.list(depth+1)
	default:
		return false
	}
	_, ok = f.take(size)
	return ok
}
