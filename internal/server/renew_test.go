package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeCertificate writes the files of a certificate with the given serial number and of its key,
// and sets the modification time of both files.
func writeCertificate(t *testing.T, c *certificate, serial int64, at time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file(t, c.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), at)
	file(t, c.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE" + " KEY", Bytes: private}), at)
}

func file(t *testing.T, path string, data []byte, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// When the files of the certificate were replaced, the server uses the new certificate as soon as
// it has checked the files again. If the new files cannot be used, the server logs the error once,
// and keeps the old certificate until the files are complete.
func TestABrokenCertificateChangesNothing(t *testing.T) {
	now := time.Now()
	reported := 0
	dir := t.TempDir()
	c := &certificate{
		cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"),
		failed: func(error) { reported++ }, now: func() time.Time { return now },
	}
	shows := func(serial int64) {
		t.Helper()
		now = now.Add(lookEvery)
		if got := c.current().Leaf.SerialNumber.Int64(); got != serial {
			t.Errorf("the server shows certificate %d, want %d", got, serial)
		}
	}
	writeCertificate(t, c, 1, now)
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	shows(1)
	writeCertificate(t, c, 2, now)
	shows(2)
	file(t, c.cert, []byte("half of"), now)
	shows(2)
	shows(2)
	if err := os.Remove(c.key); err != nil {
		t.Fatal(err)
	}
	shows(2)
	if reported != 1 {
		t.Errorf("the error was reported %d times", reported)
	}
	writeCertificate(t, c, 3, now)
	shows(3)
}

// Rule: a server reads renewed files again if only the mode of the key was corrected, or if the
// files were replaced by others with the same modification time.
func TestACertificateIsReadWithoutANewerModificationTime(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	c := &certificate{
		cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"),
		failed: func(error) {}, now: func() time.Time { return now },
	}
	shows := func(serial int64) {
		t.Helper()
		now = now.Add(lookEvery)
		if got := c.current().Leaf.SerialNumber.Int64(); got != serial {
			t.Errorf("the server shows certificate %d, want %d", got, serial)
		}
	}
	written := now
	writeCertificate(t, c, 1, written)
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{c.cert, c.key} { // a new file gets another inode
		if err := os.Rename(name, name+".old"); err != nil {
			t.Fatal(err)
		}
	}
	writeCertificate(t, c, 2, written)
	shows(2)
	writeCertificate(t, c, 3, now)
	if err := os.Chmod(c.key, 0o644); err != nil {
		t.Fatal(err)
	}
	shows(2)
	if err := os.Chmod(c.key, 0o600); err != nil {
		t.Fatal(err)
	}
	shows(3)
}
