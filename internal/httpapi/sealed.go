package httpapi

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// sealed is a token that stands for a key for some time: a stream token, or the cookie of a page
// session. The store does not contain it. It consists of the id of the key, the time when it
// expires, and an authentication code (MAC) over both and over what the token is for. Servers compute
// this code from the stored hash of the key. So every server of the store can check the token, and
// the token is not valid after its key was revoked.
type sealed struct {
	key   belay.KeyID
	until time.Time
	code  [32]byte
}

// sealedLength is the number of bytes that a token encodes.
const sealedLength = 16 + 8 + 32

// clockSkew is how far the clock of the server that made a token may be ahead of this server's clock.
const clockSkew = time.Minute

// message is the text that the code authenticates. purpose says what the token is for; about is what the token is
// limited to, and has the same length in all tokens of a purpose.
func (t *sealed) message(purpose string, about []byte) []byte {
	m := append([]byte(purpose+"\x00"), t.key[:]...)
	m = append(m, about...)
	return binary.BigEndian.AppendUint64(m, uint64(t.until.UnixMilli()))
}

// text encodes the token.
func (t *sealed) text(prefix string) string {
	b := binary.BigEndian.AppendUint64(append([]byte(nil), t.key[:]...), uint64(t.until.UnixMilli()))
	return prefix + base64.RawURLEncoding.EncodeToString(append(b, t.code[:]...))
}

// parseSealed decodes a token, and does not check whether the token is valid.
func parseSealed(prefix, text string) (*sealed, bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || len(rest) != base64.RawURLEncoding.EncodedLen(sealedLength) {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) != sealedLength {
		return nil, false
	}
	t := &sealed{until: time.UnixMilli(int64(binary.BigEndian.Uint64(b[16:24])))}
	copy(t.key[:], b)
	copy(t.code[:], b[24:])
	return t, true
}

// runs reports whether the token has not expired, and does not last longer than a token of its kind can.
func (t *sealed) runs(now time.Time, life time.Duration) bool {
	left := t.until.Sub(now)
	return left > 0 && left <= life+clockSkew
}

// keyFor finds the key of a token for a purpose. ok is false if the code is wrong or the key is not valid any more.
func (g *gate) keyFor(ctx context.Context, t *sealed, purpose string, about []byte) (k belay.Key, ok bool, err error) {
	key, code, err := g.keys.Seal(ctx, t.key, t.message(purpose, about))
	return t.opened(key, code, err)
}

// opened judges a token by the key and the code that the server has found for it.
func (t *sealed) opened(key belay.Key, code [32]byte, err error) (belay.Key, bool, error) {
	switch {
	case belay.CodeOf(err) == belay.CodeUnauthorized:
		return belay.Key{}, false, nil
	case err != nil:
		return belay.Key{}, false, err
	}
	return key, hmac.Equal(code[:], t.code[:]) && key.RevokedAt.IsZero(), nil
}

// seal makes a token of a key for a purpose and a time.
func (g *gate) seal(ctx context.Context, key belay.KeyID, purpose string, about []byte, life time.Duration,
) (*sealed, error) {
	t := &sealed{key: key, until: g.limits.now().Add(life)}
	_, code, err := g.keys.Seal(ctx, key, t.message(purpose, about))
	t.code = code
	return t, err
}
