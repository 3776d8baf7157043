package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/egress"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
)

// sight is what jobs of a process do not see of this machine, and what they see all the
// same below that.
type sight struct{ hidden, readable []string }

// sightOf is that of jobs. Own says that they have users of their own: what only the
// server's user may read is closed to them anyway. The secrets are files that the process
// reads beside those of the configuration.
func sightOf(c *config.Config, data string, command []string, own bool, secrets ...string) sight {
	s := hiddenFrom(c, data, command, own, secrets...)
	s.unique()
	if !c.Agent.Seal {
		spaces := c.Agent.WorkspaceDir
		if spaces == "" {
			spaces = filepath.Join(data, "workspaces")
		}
		s.hidden = beside(s.hidden, resolved(absolute(filepath.Join(spaces, "jobs"))))
	}
	return s
}

func hiddenFrom(c *config.Config, data string, command []string, own bool, secrets ...string) sight {
	a := c.Agent
	s := sight{readable: a.Readable}
	s.hide(a.Hidden...)
	s.hide(data, a.WorkspaceDir, os.Getenv("BELAY_CONFIG"), c.File, c.TLSKey, a.CryptKey, a.GitCredentials,
		os.Getenv("PGPASSFILE"))
	s.hide(secrets...)
	s.hidden = append(s.hidden, engines()...)
	for _, name := range a.Env {
		s.hide(os.Getenv(name + "_FILE"))
	}
	if own {
		return s
	}
	// Who listens there may take a job for the server: the service manager and its bus,
	// databases that know users by their processes. Secrets of containers are there too.
	s.hide("/run", "/var/run", os.Getenv("XDG_RUNTIME_DIR"), os.Getenv("SSH_AUTH_SOCK"))
	s.hide(storeSockets(c.Store)...)
	s.readable = slices.Concat(s.readable, runReadable, programs("/run", command))
	for _, home := range homes() {
		s.hide(home)
		for _, name := range kept {
			s.hide(filepath.Join(home, name))
		}
		s.readable = append(s.readable, programs(home, command)...)
	}
	return s
}

// engineSockets are where container engines listen, or the directories of that: to speak
// with one is to be root. They are hidden also where an engine begins later.
var engineSockets = []string{
	"/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio", "/run/cri-dockerd.sock",
	"/run/buildkit",
	"/run/k3s/containerd", "/run/balena-engine.sock", "/run/incus", "/var/lib/lxd/unix.socket",
	"/var/lib/incus/unix.socket",
	"/var/snap/lxd/common/lxd/unix.socket",
}

// runReadable are what programs need of /run: the name servers, the cache of names, and
// the programs of NixOS.
var runReadable = []string{
	"/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/stub-resolv.conf", "/run/resolvconf",
	"/run/NetworkManager/resolv.conf",
	"/run/NetworkManager/no-stub-resolv.conf", "/run/nscd", "/run/current-system", "/run/booted-system",
	"/run/opengl-driver",
}

// storeSockets are where a database on this machine listens that knows its users by
// their processes: a job that the server's user runs would be the server to it. A
// directory that others need is left, but for the socket.
func storeSockets(store string) []string {
	u, err := url.Parse(store)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil
	}
	port := cmp.Or(u.Query().Get("port"), u.Port(), os.Getenv("PGPORT"), "5432")
	var all []string
	for _, dir := range append([]string{u.Query().Get("host"), u.Hostname(), os.Getenv("PGHOST")}, "/tmp") {
		switch {
		case !filepath.IsAbs(dir):
		case slices.Contains([]string{"/tmp", "/var/tmp", "/dev/shm"}, filepath.Clean(dir)):
			all = append(all, filepath.Join(dir, ".s.PGSQL."+port))
		default:
			all = append(all, dir)
		}
	}
	return all
}

// engines are the sockets of container engines that this machine or this process's
// environment may have.
func engines() (all []string) {
	all = append(all, engineSockets...)
	for _, name := range []string{"DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "BUILDKIT_HOST"} {
		path := strings.TrimPrefix(os.Getenv(name), "unix://")
		if filepath.IsAbs(path) && filepath.Clean(path) != "/" {
			all = append(all, filepath.Clean(path))
		}
	}
	return all
}

// beside hides, instead of directories above one, all that is in them beside the way
// there: a job that may write everywhere has to find its workspace where it is.
func beside(hidden []string, dir string) (all []string) {
	for _, p := range hidden {
		if p != dir && !strings.HasPrefix(dir, p+"/") {
			all = append(all, p)
			continue
		}
		for at := p; at != dir; {
			rest, _ := strings.CutPrefix(dir, at+"/")
			name, _, _ := strings.Cut(rest, "/")
			entries, _ := os.ReadDir(at) // of what cannot be read nothing is seen
			for _, e := range entries {
				if e.Name() != name && e.Type()&os.ModeSymlink == 0 { // where one leads may be for all to see
					all = append(all, filepath.Join(at, e.Name()))
				}
			}
			at = filepath.Join(at, name)
		}
	}
	return all
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// hide adds paths that are there, by where they lead.
func (s *sight) hide(paths ...string) {
	for _, p := range paths {
		if p == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(absolute(p)); err == nil && real != "/" {
			s.hidden = append(s.hidden, real)
		}
	}
}

// unique takes out what is there twice.
func (s *sight) unique() {
	for _, list := range []*[]string{&s.hidden, &s.readable} {
		sorted := slices.Clone(*list)
		slices.Sort(sorted)
		*list = slices.Compact(sorted)
	}
}

// wallsOf are the walls around jobs that the configuration wants: what it names itself
// is insisted on.
func wallsOf(c *config.Config, s sight) (agent.Walls, error) {
	w := agent.Walls{Hidden: s.hidden, Readable: s.readable}
	if len(c.Agent.Hidden) > 0 {
		w.Insist = append(w.Insist, process.WallHidden)
	}
	if len(c.Agent.Egress) == 0 {
		return w, nil
	}
	policy, err := egress.Parse(c.Agent.Egress)
	if err != nil {
		return w, &belay.Error{Code: belay.CodeInvalid, Message: "agent.egress: " + err.Error()}
	}
	w.Insist = append(w.Insist, process.WallNetwork)
	if w.Network = process.ProxiedNetwork; policy.None() {
		w.Network = process.NoNetwork
		return w, nil
	}
	w.Proxy = func() agent.Proxy {
		s := &egress.Server{Policy: policy, Token: rand.Text(), Log: slog.Default(), Closed: ownAddress(c.Listen)}
		return agent.Proxy{
			Serve: func(l net.Listener) { _ = s.Serve(l) }, // which ends with the job
			Token: s.Token, Direct: policy.Direct(), Refused: s.Summary,
		}
	}
	return w, nil
}

// ownAddress reports the addresses at which this server listens on this machine: a
// connection that the proxy made would pass for the server's own.
func ownAddress(listen string) func(netip.AddrPort) bool {
	_, text, _ := net.SplitHostPort(listen)
	port, err := strconv.ParseUint(text, 10, 16)
	return func(a netip.AddrPort) bool {
		return err == nil && uint64(a.Port()) == port && (a.Addr().IsLoopback() || a.Addr().IsUnspecified() ||
			local(a.Addr()))
	}
}

// local reports whether an address is one of this machine's.
func local(address netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == address.Unmap()
	})
}

// homes are the home directories of this process's user: that of the environment, and
// that which the machine knows.
func homes() (all []string) {
	known := ""
	if u, err := user.LookupId(fmt.Sprint(os.Geteuid())); err == nil {
		known = u.HomeDir
	}
	for _, home := range []string{os.Getenv("HOME"), known} {
		if filepath.IsAbs(home) && filepath.Clean(home) != "/" && !slices.Contains(all, filepath.Clean(home)) {
			all = append(all, filepath.Clean(home))
		}
	}
	return all
}

// programs are the directories below a home directory that jobs need to see: those of
// PATH, and those of the command and of the files among its arguments, by every name.
func programs(home string, command []string) (all []string) {
	real, err := filepath.EvalSymlinks(home)
	if err != nil {
		return nil
	}
	see := func(path string, dir bool) {
		for _, p := range []string{path, resolved(path)} {
			at := filepath.Dir(p)
			switch {
			case dir:
				at = p
			case at == real || at == home:
				at = p // the file alone
			}
			if at != real && strings.HasPrefix(at, real+"/") || at != home && strings.HasPrefix(at, home+"/") {
				all = append(all, at)
			}
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			see(filepath.Clean(dir), true)
			if root := toolchain(filepath.Clean(dir), real); root != "" {
				see(root, true)
			}
		}
	}
	for i, arg := range command {
		if i == 0 {
			if found, err := exec.LookPath(arg); err == nil {
				arg = found
			}
		}
		if info, err := os.Stat(arg); filepath.IsAbs(arg) && err == nil {
			see(filepath.Clean(arg), info.IsDir())
		}
	}
	return all
}

// shared are directories of a home that many programs keep their things in.
var shared = []string{".local", ".config", ".cache", ".ssh", ".gnupg", ".aws", ".docker", ".kube"}

// toolchain is the directory of the toolchain whose programs are in a directory of PATH
// below a home directory: those of ~/.pyenv/shims want ~/.pyenv, those of a virtual
// environment its lib. "" if they want no more than is beside them.
func toolchain(dir, home string) string {
	root := filepath.Dir(dir)
	rest, below := strings.CutPrefix(root, home+"/")
	if !below {
		return ""
	}
	if _, err := os.Stat(filepath.Join(root, "pyvenv.cfg")); err == nil {
		return root
	}
	first, _, _ := strings.Cut(rest, "/")
	if first[0] != '.' || slices.Contains(shared, first) || !slices.Contains([]string{"bin", "sbin", "shims"},
		filepath.Base(dir)) {
		return ""
	}
	return root
}

// kept are files of toolchains that hold what proves who their user is.
var kept = []string{".cargo/credentials", ".cargo/credentials.toml", ".npmrc", ".netrc", ".git-credentials"}

// resolved is a path without links, or as it is if it leads nowhere.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
