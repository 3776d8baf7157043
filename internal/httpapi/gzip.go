package httpapi

import (
	"compress/gzip"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// leastZipped is the minimum size, in bytes, of an answer that is compressed.
const leastZipped = 1 << 10

// zippers is a pool of compressors that no answer uses at the moment.
var zippers = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // never happens, because the level is valid
	}
	return z
}}

// zipped reports whether the answers of a route may be compressed. Streams are not compressed,
// because their events would not arrive at once. Answers to writes are not compressed, because some
// contain a secret (a new key, or the lease of a claim or lock) beside text that other people
// choose: the compressed length would show whether that text resembles the secret.
func (rt *route) zipped() bool { return rt.method == http.MethodGet && !rt.stream && !rt.probe }

// takesGzip reports whether a client accepts compressed answers.
func takesGzip(h http.Header) bool {
	for _, list := range h["Accept-Encoding"] {
		for one := range strings.SplitSeq(list, ",") {
			name, quality, _ := strings.Cut(one, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			_, q, weighed := strings.Cut(strings.ReplaceAll(quality, " ", ""), "=")
			least, err := strconv.ParseFloat(q, 64)
			return !weighed || err == nil && least > 0
		}
	}
	return false
}

// zipper compresses an answer if it is long.
type zipper struct {
	http.ResponseWriter
	status int
	first  []byte // the beginning of the answer, until it is long enough to be compressed
	zip    *gzip.Writer
	plain  bool // the answer is sent without compression
}

// Unwrap lets http.ResponseController find the wrapped writer.
func (z *zipper) Unwrap() http.ResponseWriter { return z.ResponseWriter }

// WriteHeader records the status, and sends it if the answer is not to be compressed.
func (z *zipper) WriteHeader(status int) {
	if z.status != 0 {
		return
	}
	z.status = status
	h := z.Header()
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	text := kind == "application/json" || strings.HasPrefix(kind, "text/") && kind != "text/event-stream"
	size, err := strconv.Atoi(h.Get("Content-Length"))
	if status != http.StatusOK || !text || h.Get("Content-Encoding") != "" || err == nil && size < leastZipped {
		z.sendPlain()
	}
}

func (z *zipper) sendPlain() {
	z.plain = true
	z.ResponseWriter.WriteHeader(z.status)
}

// Write adds to the body.
func (z *zipper) Write(b []byte) (int, error) {
	z.WriteHeader(http.StatusOK)
	switch {
	case z.plain:
		return z.ResponseWriter.Write(b)
	case z.zip == nil && len(z.first)+len(b) < leastZipped:
		z.first = append(z.first, b...)
		return len(b), nil
	case z.zip == nil:
		if err := z.begin(); err != nil {
			return 0, err
		}
	}
	return z.zip.Write(b)
}

// begin starts the compression.
func (z *zipper) begin() error {
	h := z.Header()
	h.Set("Content-Encoding", "gzip")
	h.Del("Content-Length")
	z.ResponseWriter.WriteHeader(z.status)
	zip, ok := zippers.Get().(*gzip.Writer)
	if !ok {
		panic("httpapi: the pool of compressors has something else")
	}
	zip.Reset(z.ResponseWriter)
	z.zip = zip
	_, err := zip.Write(z.first)
	return err
}

// finish sends the rest of the answer. It is not called after a panic, so that half an answer does
// not look complete.
func (z *zipper) finish() {
	switch {
	case z.zip != nil:
		_ = z.zip.Close() // an error says that the client did not accept the answer
		zippers.Put(z.zip)
	case !z.plain && z.status != 0:
		z.Header().Set("Content-Length", strconv.Itoa(len(z.first)))
		z.sendPlain()
		_, _ = z.ResponseWriter.Write(z.first)
	}
}
