package httptask

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// sign signs the body as Standard Webhooks describes. id is the same in all attempts.
func (c *call) sign(id string, now time.Time) error {
	if c.in.SigningSecret == "" {
		return nil
	}
	secret, err := c.scope.Resolve(c.in.SigningSecret)
	if err != nil {
		return err
	}
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, "whsec_"); ok {
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return belay.Permanent(invalid("the secret for signing begins with whsec_, but the rest is not Base64"))
		}
	}
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{id, ".", at, ".", string(c.body)} {
		mac.Write([]byte(part))
	}
	c.header.Set("Webhook-Id", id)
	c.header.Set("Webhook-Timestamp", at)
	c.header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return nil
}
