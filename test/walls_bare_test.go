package test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// withoutNamespaces makes a command run as a user of this machine that cannot make a user
// namespace: the command runs inside a user namespace that maps every user to itself and forbids
// further namespaces. The kernel removes this user namespace when its last process has ended.
func withoutNamespaces(cmd *exec.Cmd, uid int) {
	cmd.Args = append([]string{cmd.Args[0], strconv.Itoa(uid), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/proc/self/exe"
	cmd.Env = append(cmd.Env, roleEnv+"=bare")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, GidMappingsEnableSetgroups: os.Geteuid() == 0,
		UidMappings: identity("uid"), GidMappings: identity("gid"), AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE},
	}
}

// identity returns the mapping of user ids (for what = "uid") or group ids (for "gid") of a new
// namespace, in which each id stays the same. A caller other than root may map only its own id.
func identity(what string) (all []syscall.SysProcIDMap) {
	if os.Geteuid() != 0 {
		id := map[string]int{"uid": os.Geteuid(), "gid": os.Getegid()}[what]
		return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
	}
	raw, _ := os.ReadFile("/proc/self/" + what + "_map")
	for line := range strings.Lines(string(raw)) {
		var first, outside, count int
		if _, err := fmt.Sscan(line, &first, &outside, &count); err == nil {
			all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: count})
		}
	}
	return all
}

// bareProcess forbids further user namespaces in its own namespace. Then it becomes the user that
// its first argument names, and runs the program of the other arguments.
func bareProcess() error {
	runtime.LockOSThread()
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0o644); err != nil {
		return err
	}
	uid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	if uid != os.Geteuid() {
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		if err := syscall.Setgid(uid); err != nil {
			return err
		}
		if err := syscall.Setuid(uid); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, roleEnv+"=") {
			env = append(env, entry)
		}
	}
	return syscall.Exec(os.Args[2], os.Args[2:], env)
}
