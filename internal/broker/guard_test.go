package broker

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// wire is a connection from which a test reads fixed bytes.
type wire struct {
	net.Conn
	in io.Reader
}

func (w wire) Read(p []byte) (int, error) { return w.in.Read(p) }

// frame is a frame of AMQP.
func frame(kind byte, channel uint16, content []byte) []byte {
	b := append([]byte{kind}, binary.BigEndian.AppendUint16(nil, channel)...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(append(b, content...), 0xCE)
}

// content is a content header: the flags and the properties of a message with a body of a size.
func content(size uint64, flags uint16, properties ...string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, size)
	return append(binary.BigEndian.AppendUint16(b, flags), strings.Join(properties, "")...)
}

func long(text string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text
}

// deep is a table with tables within it, without its size.
func deep(levels int) string {
	t := ""
	for range levels {
		t = "\x01aF" + long(t)
	}
	return t
}

// lists is a table with a list that has lists within it.
func lists(levels int) string {
	t := ""
	for range levels {
		t = "A" + long(t)
	}
	return "\x01a" + t
}

// Rule: bytes pass unchanged if the library can read them, and the headers of other messages are replaced by a mark.
// The bodies of messages that are too large are left out, on their channel only.
func TestGuard(t *testing.T) {
	const all, after = 0x8000 | 0x4000 | 0x2000 | 0x0080, "\x02id"
	mark := func(r Reason) string { return string(marked(r)) }
	good := long("\x01sS" + long("text") + "\x01tt\x01\x01bb\x01\x01BB\x01" +
		"\x02shs\x00\x01\x01uu\x00\x01\x01II\x00\x00\x00\x01" +
		"\x01ii\x00\x00\x00\x01\x01ff\x00\x00\x00\x01\x01dd\x00\x00\x00\x00\x00\x00\x00\x01\x01DD\x00\x00\x00\x00\x01" +
		"\x01ll\x00\x00\x00\x00\x00\x00\x00\x01\x01TT\x00\x00\x00\x00\x00\x00\x00\x01\x01vV\x01xx" + long("\x00\xff") +
		"\x01aA" + long("VS"+long("x")+"F"+long("\x01aV")))
	body := frame(bodyFrame, 7, []byte("12345"))
	for name, c := range map[string]struct{ in, want []byte }{
		"methods":      {frame(methodFrame, 7, []byte("\x00\x3c")), nil},
		"a message":    {append(frame(headerFrame, 7, content(5, all, "\x01c", "\x01e", good, after)), body...), nil},
		"no headers":   {append(frame(headerFrame, 7, content(5, 0x80, after)), body...), nil},
		"nested":       {frame(headerFrame, 7, content(0, 0x2000, long(deep(32)))), nil},
		"nested lists": {frame(headerFrame, 7, content(0, 0x2000, long(lists(32)))), nil},
		"not AMQP":     {[]byte("AMQP\x00\x00\x09\x01 and more"), nil},
		"a heartbeat":  {frame(heartbeatFrame, 0, nil), nil},
		"short":        {frame(headerFrame, 7, []byte{0, 60}), nil},
		"nested too deep": {
			append(frame(headerFrame, 7, content(5, all, "\x01c", "\x01e", long(deep(33)), after)), body...),
			append(frame(headerFrame, 7, content(5, all, "\x01c", "\x01e", mark(Unreadable), after)), body...),
		},
		"lists nested too deep": {
			frame(headerFrame, 7, content(0, 0x2000, long(lists(33)))),
			frame(headerFrame, 7, content(0, 0x2000, mark(Unreadable))),
		},
		"an unknown type": {
			frame(headerFrame, 7, content(0, 0x2000, long("\x01a?"))),
			frame(headerFrame, 7, content(0, 0x2000, mark(Unreadable))),
		},
		"a value cut off": {
			frame(headerFrame, 7, content(0, 0x2000, long("\x01al\x00"))),
			frame(headerFrame, 7, content(0, 0x2000, mark(Unreadable))),
		},
		"a table that is too long": {
			frame(headerFrame, 7, content(0, 0x2080, "\xff\xff\xff\xff", after)),
			frame(headerFrame, 7, content(0, 0x2000, mark(Unreadable))),
		},
		"many elements": {
			frame(headerFrame, 7, content(0, 0x2000, long("\x01aA"+long(strings.Repeat("V", 8193))))),
			frame(headerFrame, 7, content(0, 0x2000, mark(Unreadable))),
		},
		"a large body": {
			slicesOf(frame(headerFrame, 7, content(101, 0x80, after)), frame(bodyFrame, 8, []byte("other")),
				frame(bodyFrame, 7, make([]byte, 100)), frame(bodyFrame, 7, make([]byte, 1)), body),
			slicesOf(frame(headerFrame, 7, content(0, 0x2080, mark(TooLarge), after)),
				frame(bodyFrame, 8, []byte("other")), body),
		},
		"a large body that is cut off": {
			slicesOf(frame(headerFrame, 7, content(101, 0x80, after)), frame(methodFrame, 7, []byte("\x00\x3c")), body),
			slicesOf(frame(headerFrame, 7, content(0, 0x2080, mark(TooLarge), after)),
				frame(methodFrame, 7, []byte("\x00\x3c")), body),
		},
		"a huge body": {
			frame(headerFrame, 7, content(1<<63, 0x2000, long(deep(50)))),
			frame(headerFrame, 7, content(0, 0x2000, mark(TooLarge))),
		},
	} {
		want := c.want
		if want == nil {
			want = c.in
		}
		for _, in := range []io.Reader{bytes.NewReader(c.in), iotest.OneByteReader(bytes.NewReader(c.in))} {
			got, err := io.ReadAll(newGuard(wire{in: in}, 100))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v\n%q\nwant\n%q", name, err, got, want)
			}
		}
	}
}

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// Rule: a connection that ends within a frame is an error, and the guard never passes more than it got.
func TestGuardOfCutConnections(t *testing.T) {
	whole := slicesOf(frame(headerFrame, 7, content(5, 0x2000, long(deep(3)))), frame(bodyFrame, 7, []byte("12345")))
	for n := range whole {
		got, _ := io.ReadAll(newGuard(wire{in: bytes.NewReader(whole[:n])}, 100))
		if !bytes.HasPrefix(whole, got) {
			t.Fatalf("after %d bytes: %q", n, got)
		}
	}
}

// The guard reads what hostile senders have made, so no bytes may make it panic or hang. A second guard changes nothing
// that the first one has passed.
func FuzzGuard(f *testing.F) {
	f.Add(frame(headerFrame, 7, content(5, 0xe080, "\x01c", "\x01e", long(deep(40)), "\x02id")))
	f.Add(frame(headerFrame, 7, content(500, 0x2000, long(lists(2)))))
	f.Add(frame(bodyFrame, 7, []byte("12345")))
	f.Fuzz(func(t *testing.T, in []byte) {
		once, err := io.ReadAll(newGuard(wire{in: bytes.NewReader(in)}, 100))
		if err != nil {
			return
		}
		chunks := iotest.HalfReader(bytes.NewReader(once))
		twice, err := io.ReadAll(newGuard(wire{in: chunks}, 100))
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%v\n%q\n%q", err, once, twice)
		}
	})
}

// A table of random bytes is readable only if it is whole.
func TestReadableIsStrict(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	whole := []byte("\x01sS" + long("text") + "\x01aA" + long("VVI\x00\x00\x00\x01") + "\x01fF" + long("\x01tt\x01"))
	if !readable(whole) {
		t.Fatal("a right table is not readable")
	}
	for range 1000 {
		n := r.IntN(len(whole))
		if cut := whole[:n]; readable(cut) && n != 0 && n != 11 && n != 11+14 {
			t.Fatalf("%q is readable", cut)
		}
	}
}
