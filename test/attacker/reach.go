//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// soon is the time limit for every attempt to reach an address.
const soon = 3 * time.Second

// port asks the server for data that only an administrator may read.
func port(s *spec) (string, error) {
	return administer(s.Port, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Port)
	})
}

func socket(s *spec) (string, error) {
	return administer("localhost", func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.Socket)
	})
}

func administer(host string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (string,
	error) {
	client := &http.Client{Timeout: soon, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	var statuses []int
	for _, path := range []string{"/v1/keys", "/v1/executions"} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+host+path, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", bare(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode < 300 {
			return path + " was answered", nil
		}
		statuses = append(statuses, resp.StatusCode)
	}
	return "", fmt.Errorf("the server answers %v", statuses)
}

// listenAbstract listens on an abstract socket.
func listenAbstract(name string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "unix", "@"+name)
}

func abstract(s *spec) (string, error) { return send("unix", "@"+s.VictimSocket, s.Token) }
func engine(s *spec) (string, error)   { return send("unix", s.Engine, s.Token) }
func bus(s *spec) (string, error)      { return send("unix", s.Bus, s.Token) }
func tcp(s *spec) (string, error)      { return send("tcp", s.TCP, s.Token) }
func udp(s *spec) (string, error)      { return send("udp", s.UDP, s.Token) }

// send sends a text to an address. A datagram is sent several times, since it may be lost.
func send(network, address, text string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return "", bare(err)
	}
	defer c.Close()
	for range 3 {
		_, werr := io.WriteString(c, text)
		err = errors.Join(err, werr)
	}
	if err != nil {
		return "", bare(err)
	}
	return "the address was reached", nil
}
