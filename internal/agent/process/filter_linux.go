package process

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterFor returns the seccomp program that refuses system calls of a run; nil if no program is
// needed. The program refuses accesses that namespaces and Landlock do not prevent:
//
//   - In a network namespace: sockets of families without namespaces, such as sockets to the host
//     of a virtual machine.
//   - Without a network namespace: every socket that reaches another machine. With a proxied
//     network TCP sockets are allowed, because Landlock restricts their ports. TCP Fast Open is
//     refused, because it connects by sending, which Landlock does not check.
//   - A change to the resource limits of other processes, such as the supervisor.
//
// io_uring is refused, because the filter cannot see requests that a process makes through
// io_uring.
func filterFor(o *order) []unix.SockFilter {
	var f filter
	closed := o.Network != HostNetwork
	switch {
	case closed && o.Isolation != Subreaper:
		f.allowFamilies(unix.AF_UNIX, unix.AF_NETLINK, unix.AF_INET, unix.AF_INET6)
	case o.Network == NoNetwork:
		f.allowFamilies(unix.AF_UNIX, unix.AF_NETLINK)
	case o.Network == ProxiedNetwork:
		f.allowFamilies(unix.AF_UNIX, unix.AF_NETLINK, onlyTCP|unix.AF_INET, onlyTCP|unix.AF_INET6)
		f.refuseFlag(unix.SYS_SENDTO, 3, unix.MSG_FASTOPEN)
		f.refuseFlag(unix.SYS_SENDMSG, 2, unix.MSG_FASTOPEN)
		f.refuseFlag(unix.SYS_SENDMMSG, 3, unix.MSG_FASTOPEN)
	}
	if closed {
		f.refuse(unix.SYS_IO_URING_SETUP, unix.ENOSYS)
	}
	if o.walled() {
		f.ownLimits()
	}
	return f.program()
}

// architectures are the processor architectures that the filter supports. The filter has their
// system call numbers, and needs a little-endian byte order, in which the lower half of an argument
// comes first.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// install applies a filter to the calling thread and everything that it starts. A filter cannot be
// removed.
func install(program []unix.SockFilter) error {
	if len(program) == 0 {
		return nil
	}
	if _, known := architectures[runtime.GOARCH]; !known {
		return fmt.Errorf("no filter of system calls for %s", runtime.GOARCH)
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0,
		0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// filter is a seccomp program to which instructions are added. Each block of instructions decides
// whether one system call is allowed, and ends with a return. At the start of a block, the
// accumulator contains the number of the system call.
type filter []unix.SockFilter

// The offsets in seccomp_data of the number of a system call, of the architecture, and of the first
// argument. An argument has 64 bits; its offset is the offset of the lower 32 bits.
const (
	atNumber       = 0
	atArchitecture = 4
	atArguments    = 16
)

// onlyTCP is a flag that a caller of allowFamilies adds to an address family, to allow only the TCP
// sockets of that family.
const onlyTCP = 1 << 16

func load(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

func loadArgument(n uint32) unix.SockFilter { return load(atArguments + 8*n) }

// unless returns an instruction that compares the loaded value with k. If they differ, it skips the
// given number of instructions.
func unless(k uint32, skip int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: uint8(skip)}
}

// given returns an instruction that compares the loaded value with k. If they are equal, it skips
// the given number of instructions.
func given(k uint32, skip int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: uint8(skip)}
}

func answer(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func failure(errno unix.Errno) unix.SockFilter {
	return answer(unix.SECCOMP_RET_ERRNO | uint32(errno))
}

var allowed = answer(unix.SECCOMP_RET_ALLOW)

// addBlock adds the instructions that decide whether one system call is allowed.
func (f *filter) addBlock(number uint32, block ...unix.SockFilter) {
	*f = append(append(*f, unless(number, len(block))), block...)
}

func (f *filter) refuse(number uint32, errno unix.Errno) { f.addBlock(number, failure(errno)) }

// refuseFlag refuses a system call if the given argument has the flag.
func (f *filter) refuseFlag(number, argument, flag uint32) {
	f.addBlock(number,
		loadArgument(argument),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: flag, Jt: 1},
		allowed, failure(unix.EOPNOTSUPP))
}

// allowFamilies refuses the system call socket for every address family that is not listed; see
// onlyTCP.
func (f *filter) allowFamilies(families ...uint32) {
	var block []unix.SockFilter
	for _, family := range families {
		then := []unix.SockFilter{allowed}
		if family&onlyTCP != 0 {
			then = []unix.SockFilter{
				loadArgument(1), {Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf}, unless(unix.SOCK_STREAM, 4),
				loadArgument(2), given(0, 1), unless(unix.IPPROTO_TCP, 1),
				allowed, failure(unix.EACCES),
			}
		}
		block = append(append(append(block, loadArgument(0)), unless(family&^onlyTCP, len(then))), then...)
	}
	f.addBlock(unix.SYS_SOCKET, append(block, failure(unix.EAFNOSUPPORT))...)
}

// ownLimits lets a process change only its own resource limits: it allows prlimit64 only for the
// process id 0, which means the calling process.
func (f *filter) ownLimits() {
	f.addBlock(unix.SYS_PRLIMIT64, loadArgument(0), unless(0, 1), allowed, failure(unix.EPERM))
}

// program returns the complete filter. The filter refuses the system calls of any other processor
// architecture, in which the same numbers mean other system calls.
func (f *filter) program() []unix.SockFilter {
	if len(*f) == 0 {
		return nil
	}
	const otherNumbers = 0x40000000 // the system call numbers of the x32 interface begin here
	begin := []unix.SockFilter{
		load(atArchitecture), given(architectures[runtime.GOARCH], 1), failure(unix.ENOSYS),
		load(atNumber), {Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: otherNumbers, Jf: 1}, failure(unix.ENOSYS),
	}
	return slices.Concat(begin, *f, []unix.SockFilter{allowed})
}
