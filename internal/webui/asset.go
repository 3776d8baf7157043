package webui

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// asset is a file that pages load. Its address contains a hash of its content, so that browsers may
// cache it for ever.
type asset struct {
	kind    string
	address string
	hash    string
	data    []byte
}

func newAsset(name, kind string) asset {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is embedded in the binary
	}
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:8])
	return asset{kind: kind, address: "/" + name + "?v=" + hash, hash: hash, data: data}
}

func (a asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.hash {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(a.data) // the browser may have disconnected
}
