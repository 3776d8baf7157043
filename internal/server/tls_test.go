package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/config"
)

// certify writes a certificate for 127.0.0.1 with a serial number, and its key.
func certify(t *testing.T, dir string, serial int64) (certFile, keyFile string, cert *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "belay test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE" + " KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, cert
}

// trusting makes a client that trusts a certificate and speaks TLS up to the version most.
func trusting(t *testing.T, cert *x509.Certificate, most uint16) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: most},
		ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// With a certificate the server speaks TLS 1.2 and newer, and HTTP/2 over TLS. It uses a renewed
// certificate without a restart.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, first := certify(t, dir, 1)
	r := start(t, setup{cfg: func(c *config.Config) { c.TLSCert, c.TLSKey = certFile, keyFile }})
	if !strings.HasPrefix(r.url, "https://") {
		t.Errorf("the address is %s", r.url)
	}
	resp, err := trusting(t, first, 0).Get(r.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.TLS.Version < tls.VersionTLS12 {
		t.Errorf("the server speaks %s, TLS %x", resp.Proto, resp.TLS.Version)
	}
	if _, _, err := try(t.Context(), trusting(t, first, tls.VersionTLS11), http.MethodGet, r.url+"/healthz",
		""); err == nil {
		t.Error("the server speaks TLS 1.1")
	}
	_, _, second := certify(t, dir, 2)
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(certFile, later, later); err != nil {
		t.Fatal(err)
	}
	if !r.until(second, 2) {
		t.Errorf("the new certificate is not shown\n%s", r.log)
	}
}

// until connects repeatedly until a TLS connection that trusts only cert succeeds, and reports
// whether the server then shows the certificate with the given serial number.
func (r *running) until(cert *x509.Certificate, serial int64) bool {
	for over := time.After(soon); ; {
		resp, err := trusting(r.t, cert, 0).Get(r.url + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
			return resp.TLS.PeerCertificates[0].SerialNumber.Int64() == serial
		}
		select {
		case <-over:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Rule: the server does not start with a certificate that cannot be read.
func TestNoStartWithoutAReadableCertificate(t *testing.T) {
	err := start(t, setup{cfg: func(c *config.Config) { c.TLSCert, c.TLSKey = "no.pem", "no.pem" }}).wait()
	if err == nil || !strings.Contains(err.Error(), "no.pem") {
		t.Errorf("%v", err)
	}
}
