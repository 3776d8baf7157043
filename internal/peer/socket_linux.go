package peer

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// find returns the socket with the address local that is connected to remote.
func find(local, remote netip.AddrPort) (Socket, error) {
	s, err := diagnose(local, remote)
	if err != nil && !errors.Is(err, ErrUnknown) { // netlink is not available: an old kernel, or a seccomp filter
		s, err = fromTables("/proc/net/", local, remote)
	}
	if err == nil && s.Inode == 0 {
		err = fmt.Errorf("%w: the peer has closed the connection", ErrUnknown)
	}
	return s, err
}

// The messages of NETLINK_SOCK_DIAG; see sock_diag(7).
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	headerSize   = 16 // struct nlmsghdr
	idSize       = 48 // struct inet_diag_sockid
	requestSize  = headerSize + 8 + idSize
	answerSize   = headerSize + 4 + idSize + 20 // struct inet_diag_msg
	anyCookie    = 1<<32 - 1
	diagPatience = 2 // seconds
)

// diagnose asks the kernel for one socket, by the addresses of both its ends.
func diagnose(local, remote netip.AddrPort) (Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return Socket{}, fmt.Errorf("request a socket from the kernel: %w", err)
	}
	defer unix.Close(fd)
	patience := unix.Timeval{Sec: diagPatience}
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	if err == nil {
		err = uninterrupted(func() error {
			return unix.Sendto(fd, request(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		})
	}
	if err != nil {
		return Socket{}, fmt.Errorf("request a socket from the kernel: %w", err)
	}
	var buffer [8192]byte
	var n int
	var from unix.Sockaddr
	err = uninterrupted(func() (err error) {
		n, from, err = unix.Recvfrom(fd, buffer[:], 0)
		return err
	})
	if err != nil {
		return Socket{}, fmt.Errorf("request a socket from the kernel: %w", err)
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return Socket{}, errors.New("request a socket from the kernel: the answer comes from another process")
	}
	return answer(buffer[:n], local, remote)
}

// request makes the netlink request for a socket.
func request(local, remote netip.AddrPort) []byte {
	b := make([]byte, requestSize)
	native := binary.NativeEndian
	native.PutUint32(b[0:], requestSize)
	native.PutUint16(b[4:], diagByFamily)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST)
	q := b[headerSize:]
	q[0], q[1] = unix.AF_INET, unix.IPPROTO_TCP
	if local.Addr().Is6() {
		q[0] = unix.AF_INET6
	}
	native.PutUint32(q[4:], 1<<32-1) // all states of a connection
	id := q[8:]
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	native.PutUint32(id[36:], uint32(interfaceOf(local.Addr())))
	native.PutUint32(id[40:], anyCookie)
	native.PutUint32(id[44:], anyCookie)
	return b
}

// interfaceOf returns the index of the interface in the zone of a link-local address.
func interfaceOf(a netip.Addr) int {
	if a.Zone() == "" {
		return 0
	}
	if i, err := net.InterfaceByName(a.Zone()); err == nil {
		return i.Index
	}
	n, _ := strconv.Atoi(a.Zone())
	return n
}

// answer reads the kernel's answer. The kernel may answer with another socket, such as the listener
// on the port of a closed connection; that is an error.
func answer(b []byte, local, remote netip.AddrPort) (Socket, error) {
	native := binary.NativeEndian
	if len(b) < headerSize {
		return Socket{}, io.ErrUnexpectedEOF
	}
	if kind := native.Uint16(b[4:]); kind == unix.NLMSG_ERROR && len(b) >= headerSize+4 {
		code := unix.Errno(-int32(native.Uint32(b[headerSize:])))
		if code == unix.ENOENT {
			return Socket{}, fmt.Errorf("%w: the socket does not exist any more", ErrUnknown)
		}
		return Socket{}, fmt.Errorf("request a socket from the kernel: %w", code)
	} else if kind != diagByFamily || len(b) < answerSize {
		return Socket{}, fmt.Errorf("request a socket from the kernel: an answer of type %d with %d bytes", kind,
			len(b))
	}
	m := b[headerSize:]
	id := m[4:]
	addr := func(b []byte, port []byte) netip.AddrPort {
		var a netip.Addr
		if m[0] == unix.AF_INET6 {
			a = netip.AddrFrom16([16]byte(b[:16])).Unmap()
		} else {
			a = netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
	}
	if got := addr(id[4:20], id[0:2]); got != bare(local) {
		return Socket{}, fmt.Errorf("%w: the kernel reports the socket %s instead", ErrUnknown, got)
	}
	if got := addr(id[20:36], id[2:4]); got != bare(remote) {
		return Socket{}, fmt.Errorf("%w: the kernel reports a socket connected to %s instead", ErrUnknown, got)
	}
	facts := m[4+idSize:]
	return Socket{UID: native.Uint32(facts[12:]), Inode: native.Uint32(facts[16:])}, nil
}

// bare returns an address without its zone.
func bare(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}

// fromTables finds a socket in the tables of /proc/net. The tables have the same data as the
// netlink answer, but reading them takes longer. A connection over IPv4 may be in the table of
// IPv6.
func fromTables(dir string, local, remote netip.AddrPort) (Socket, error) {
	var none error
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(dir + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Socket{}, fmt.Errorf("look for a socket: %w", err)
		}
		s, found, err := scan(f, bare(local), bare(remote))
		_ = f.Close()
		if found {
			return s, nil
		}
		none = errors.Join(none, err)
	}
	if none != nil {
		return Socket{}, fmt.Errorf("look for a socket: %w", none)
	}
	return Socket{}, fmt.Errorf("%w: the socket does not exist any more", ErrUnknown)
}

// scan searches one table for a socket.
func scan(r io.Reader, local, remote netip.AddrPort) (s Socket, found bool, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || unhex(f[1]) != local || unhex(f[2]) != remote {
			continue
		}
		uid, err := strconv.ParseUint(f[7], 10, 32)
		inode, err2 := strconv.ParseUint(f[9], 10, 32)
		if err != nil || err2 != nil {
			return s, false, errors.Join(err, err2)
		}
		return Socket{UID: uint32(uid), Inode: uint32(inode)}, true, nil
	}
	return s, false, lines.Err()
}

// unhex reads an address in the format of /proc/net: hexadecimal words in the byte order of the
// machine.
func unhex(text string) netip.AddrPort {
	host, port, ok := strings.Cut(text, ":")
	words, err := hex.DecodeString(host)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || err2 != nil || len(words)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(words); i += 4 {
		binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
	}
	a, ok := netip.AddrFromSlice(words)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n))
}
