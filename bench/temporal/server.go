package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belaydev/belay/bench/trial"
)

// configuration is Temporal's development-postgres12.yaml without archival and metrics.
const configuration = `log: {stdout: false, level: fatal}
persistence:
  defaultStore: default
  visibilityStore: visibility
  numHistoryShards: {{.Shards}}
  datastores:
    default:
      sql: {pluginName: postgres12_pgx, databaseName: {{.Database}}, connectAddr: "{{.Host}}", connectProtocol: tcp, user: {{.User}}, maxConns: {{.Conns}}, maxIdleConns: {{.Conns}}, maxConnLifetime: 1h}
    visibility:
      sql: {pluginName: postgres12_pgx, databaseName: {{.Database}}_visibility, connectAddr: "{{.Host}}", connectProtocol: tcp, user: {{.User}}, maxConns: 10, maxIdleConns: 10, maxConnLifetime: 1h}
global:
  membership: {maxJoinDuration: 30s, broadcastAddress: 127.0.0.1}
services:
{{range $name, $port := .Services}}  {{$name}}:
    rpc: {grpcPort: {{index $port 0}}, membershipPort: {{index $port 1}}, bindOnLocalHost: true}
{{end}}clusterMetadata:
  enableGlobalNamespace: false
  failoverVersionIncrement: 10
  masterClusterName: active
  currentClusterName: active
  clusterInformation:
    active: {enabled: true, initialFailoverVersion: 1, rpcName: frontend, rpcAddress: "{{.Address}}"}
dcRedirectionPolicy: {policy: noop}
dynamicConfigClient: {filepath: "{{.Dynamic}}", pollInterval: 60s}
`

// server is a Temporal server on two databases of its own.
type server struct {
	settings
	Database, Host, User string
	Shards, Conns        int
	Services             map[string][2]int
	Address, Dynamic     string
	*trial.Child
	log   bytes.Buffer // may be read only after the server has ended
	admin *pgx.Conn
}

// serve makes the tables and starts a server.
func serve(ctx context.Context, r trial.Request, o settings) (*server, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	s := &server{
		settings: o, Shards: o.shards, Conns: o.conns,
		Database: strings.TrimPrefix(u.Path, "/"), Host: u.Host, User: u.User.Username(),
		Services: make(map[string][2]int), Dynamic: filepath.Join(r.Dir, "dynamic.yaml"),
	}
	if err := s.ports(ctx); err != nil {
		return nil, err
	}
	if s.admin, err = pgx.Connect(ctx, r.URL); err != nil {
		return nil, err
	}
	if err = s.tables(ctx); err == nil {
		err = s.start(r.Dir)
	}
	if err != nil {
		s.stop(ctx)
	}
	return s, err
}

// ports finds two free ports for each service, all below 2^15: Temporal stores them as signed
// 16-bit numbers.
func (s *server) ports(ctx context.Context) error {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	port := 20_000 + os.Getpid()%10_000
	for _, name := range []string{"frontend", "history", "matching", "worker"} {
		var two [2]int
		for i := range two {
			for two[i] == 0 {
				if port++; port >= 1<<15 {
					return errors.New("no free ports")
				}
				l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					continue // another process uses the port
				}
				open, two[i] = append(open, l), port
			}
		}
		s.Services[name] = two
	}
	s.Address = fmt.Sprintf("127.0.0.1:%d", s.Services["frontend"][0])
	return nil
}

// tables makes the database of Temporal's visibility store, and the tables of both databases.
func (s *server) tables(ctx context.Context) error {
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+s.Database+"_visibility TEMPLATE template0"); err != nil {
		return err
	}
	for database, schema := range map[string]string{s.Database: "temporal", s.Database + "_visibility": "visibility"} {
		for _, args := range [][]string{{"setup-schema", "-v", "0.0"}, {"update-schema", "--schema-name",
			"postgresql/v12/" + schema}} {
			if err := s.tool(ctx, database, args...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *server) tool(ctx context.Context, database string, args ...string) error {
	host, port, err := net.SplitHostPort(s.Host)
	if err != nil {
		return err
	}
	path, err := beside("temporal-sql-tool")
	if err != nil {
		return err
	}
	args = append([]string{"--ep", host, "-p", port, "-u", s.User, "--pl", "postgres12_pgx", "--db", database}, args...)
	if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("temporal-sql-tool %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// beside returns the path of a program that is in the same directory as this program.
func beside(name string) (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), name), err
}

func (s *server) start(dir string) error {
	path, err := beside("temporal-server")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "temporal.yaml")
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = template.Must(template.New("").Parse(configuration)).Execute(f, s)
	if err := errors.Join(err, f.Close(), os.WriteFile(s.Dynamic, nil, 0o600)); err != nil {
		return err
	}
	cmd := exec.Command(path, "--config-file", file, "--allow-no-auth",
		"start") //nolint:noctx // the trial stops the server gracefully
	cmd.Stderr = &s.log
	s.Child, err = trial.Start(cmd)
	return err
}

// stop stops the server and drops the database of the visibility store; the caller drops the other
// database.
func (s *server) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if s.Child != nil {
		_ = s.Stop(10 * time.Second)
	}
	_, _ = s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+s.Database+"_visibility WITH (FORCE)")
	_ = s.admin.Close(ctx)
}
