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
	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/internal/secretref"
)

// visibility has three lists of paths: hidden paths, which jobs cannot see; files with secrets, which
// jobs cannot see either, also if the files are replaced or made later; and readable paths, which
// jobs may read although they are below hidden paths.
type visibility struct{ hidden, secrets, readable []string }

// visibilityOf returns the paths that are hidden from jobs, and the paths below them that jobs may
// read. own says that jobs have system users of their own, who cannot read files that only the
// server's user may read. secrets are files that the server or worker reads in addition to those
// that the configuration names.
func visibilityOf(c *config.Config, data string, command []string, own bool, secrets ...string) visibility {
	s := hiddenFrom(c, data, command, own, secrets...)
	s.unique()
	if !c.Agent.Seal {
		spaces := c.Agent.WorkspaceDir
		if spaces == "" {
			spaces = filepath.Join(data, "workspaces")
		}
		s.hidden = hideExcept(s.hidden, resolved(absolute(filepath.Join(spaces, "jobs"))))
	}
	return s
}

// hiddenFrom returns the visibility of jobs for which all files outside of the workspace are
// read-only (agent.seal). Its parameters are those of visibilityOf.
func hiddenFrom(c *config.Config, data string, command []string, own bool, secrets ...string) visibility {
	a := c.Agent
	s := visibility{readable: a.Readable}
	s.conceal(a.Hidden...)
	s.hide(data, a.WorkspaceDir)
	s.conceal(os.Getenv("BELAY_CONFIG"), c.File, c.TLSKey, c.Broker.PasswordFile, a.CryptKey, a.GitCredentials,
		a.PushCredentials, os.Getenv("PGPASSFILE"))
	s.conceal(secrets...)
	s.hidden = append(s.hidden, engines()...)
	for _, name := range slices.Concat(a.Env, a.PushEnv) {
		s.conceal(os.Getenv(name + "_FILE"))
	}
	if rules, err := secretref.Parse(c.Secrets); err == nil {
		s.conceal(rules.Files()...)
	}
	if own {
		return s
	}
	// Some services that listen below these directories identify a client by the user of its
	// process: the service manager, its bus, and databases. Such a service would accept a job as if
	// it were the server, since the job runs as the server's user. Containers also have their
	// secrets there.
	s.hide("/run", "/var/run", os.Getenv("XDG_RUNTIME_DIR"), os.Getenv("SSH_AUTH_SOCK"))
	s.hide(storeSockets(c.Store)...)
	s.readable = slices.Concat(s.readable, runReadable, programs("/run", command))
	for _, home := range homes() {
		s.hide(home)
		for _, name := range credentialFiles {
			s.conceal(filepath.Join(home, name))
		}
		s.readable = append(s.readable, programs(home, command)...)
	}
	return s
}

// engineSockets are the sockets of container engines, or the directories of the sockets. A process
// that can connect to such an engine can become root. The sockets are hidden even if no engine
// runs, since an engine may start later.
var engineSockets = []string{
	"/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio", "/run/cri-dockerd.sock",
	"/run/buildkit",
	"/run/k3s/containerd", "/run/balena-engine.sock", "/run/incus", "/var/lib/lxd/unix.socket",
	"/var/lib/incus/unix.socket",
	"/var/snap/lxd/common/lxd/unix.socket",
}

// runReadable are the paths below /run that programs need: the list of name servers, the socket
// of the name service cache, and the programs of NixOS.
var runReadable = []string{
	"/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/stub-resolv.conf", "/run/resolvconf",
	"/run/NetworkManager/resolv.conf",
	"/run/NetworkManager/no-stub-resolv.conf", "/run/nscd", "/run/current-system", "/run/booted-system",
	"/run/opengl-driver",
}

// storeSockets returns the socket of the server's database on this machine, or the socket's
// directory. The database may identify a client by the user of its process, so it would accept a
// job of the server's user as if it were the server. In /tmp and similar directories, which
// programs need, only the socket is hidden.
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

// engines returns the sockets of container engines: the usual sockets, and those that the
// environment of this process names.
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

// hideExcept replaces each hidden directory above dir by the entries of that directory, except for
// the entries on the path to dir. Unless agent.seal is set, a job finds its workspace at its real
// path below dir, so this path must stay visible.
func hideExcept(hidden []string, dir string) (all []string) {
	for _, p := range hidden {
		if p != dir && !strings.HasPrefix(dir, p+"/") {
			all = append(all, p)
			continue
		}
		for at := p; at != dir; {
			rest, _ := strings.CutPrefix(dir, at+"/")
			name, _, _ := strings.Cut(rest, "/")
			entries, _ := os.ReadDir(at) // a directory that the server cannot read is not readable for jobs either
			for _, e := range entries {
				if e.Name() != name && e.Type()&os.ModeSymlink == 0 { // the target of a link may be a public file
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

// hide adds the paths that exist to the hidden paths, with all links resolved.
func (s *visibility) hide(paths ...string) {
	for _, p := range paths {
		if p == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(absolute(p)); err == nil && real != "/" {
			s.hidden = append(s.hidden, real)
		}
	}
}

// conceal hides files with secrets, which may not exist yet. The sandbox of each job follows the links
// on their paths again, because the files may be replaced between jobs.
func (s *visibility) conceal(paths ...string) {
	s.hide(paths...)
	for _, p := range paths {
		if p != "" && absolute(p) != "/" {
			s.secrets = append(s.secrets, absolute(p))
		}
	}
}

// unique sorts the lists and removes duplicates.
func (s *visibility) unique() {
	for _, list := range []*[]string{&s.hidden, &s.secrets, &s.readable} {
		sorted := slices.Clone(*list)
		slices.Sort(sorted)
		*list = slices.Compact(sorted)
	}
}

// wallsOf returns the walls around jobs (the parts of their sandbox). If the configuration sets
// agent.hidden or agent.egress, it demands that wall: no jobs run if the machine cannot provide it.
func wallsOf(c *config.Config, s visibility) (agent.Walls, error) {
	w := agent.Walls{Hidden: s.hidden, Secrets: s.secrets, Readable: s.readable}
	if len(c.Agent.Hidden) > 0 {
		w.Insist = append(w.Insist, process.WallHidden)
	}
	if len(c.Agent.Egress) == 0 {
		return w, nil
	}
	policy, err := reach.Parse(c.Agent.Egress)
	if err != nil {
		return w, &belay.Error{Code: belay.CodeInvalid, Message: "agent.egress: " + err.Error()}
	}
	w.Insist = append(w.Insist, process.WallNetwork)
	if w.Network = process.ProxiedNetwork; policy.None() {
		w.Network = process.NoNetwork
		return w, nil
	}
	w.Proxy = func(run slog.Attr) agent.Proxy {
		s := &egress.Server{
			Policy: policy, Token: rand.Text(), Log: slog.Default().With(run), Closed: ownAddress(c.Listen),
		}
		return agent.Proxy{
			Serve: func(l net.Listener) { _ = s.Serve(l) }, // Serve returns when the job ends
			Token: s.Token, Direct: policy.Direct(), Refused: s.Summary,
		}
	}
	return w, nil
}

// ownAddress returns a function that reports whether this server listens at an address. The proxy
// through which jobs use the network must not connect a job to such an address: the server would
// take the job's requests for requests of the proxy, which needs no key because it is no job.
func ownAddress(listen string) func(netip.AddrPort) bool {
	_, text, _ := net.SplitHostPort(listen)
	port, err := strconv.ParseUint(text, 10, 16)
	return func(a netip.AddrPort) bool {
		return err == nil && uint64(a.Port()) == port && (a.Addr().IsLoopback() || a.Addr().IsUnspecified() ||
			local(a.Addr()))
	}
}

// local reports whether an address belongs to a network interface of this machine.
func local(address netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == address.Unmap()
	})
}

// homes returns the home directories of this process's user: the directory in HOME, and the
// directory in the machine's user database.
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

// programs returns the paths below a hidden directory, such as a home directory, that jobs need to
// read: the directories in PATH, and the directories of the command and of the files among its
// arguments. It returns each path as it is written and with its links resolved.
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
				at = p // in the home directory itself, only the file may become readable, not the whole home
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

// shared are the directories of a home in which many programs keep their files.
var shared = []string{".local", ".config", ".cache", ".ssh", ".gnupg", ".aws", ".docker", ".kube"}

// toolchain returns the directory of the toolchain whose programs are in dir, a directory of PATH
// below a home directory. For example, programs in ~/.pyenv/shims need ~/.pyenv, and programs of a
// virtual environment need its lib. It returns "" if the programs need nothing outside dir.
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

// credentialFiles are the files of toolchains with passwords or tokens of their user.
var credentialFiles = []string{".cargo/credentials", ".cargo/credentials.toml", ".npmrc", ".netrc", ".git-credentials"}

// resolved returns a path with its links resolved, or unchanged if the path does not exist.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
