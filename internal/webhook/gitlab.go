package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
)

// verifyGitLab verifies deliveries of GitLab, https://docs.gitlab.com/user/project/integrations/webhooks. A secret that
// begins with whsec_ is a signing token, with which GitLab signs as Standard Webhooks describes,
// https://gitlab.com/gitlab-org/gitlab/-/merge_requests/230944. Every other secret is a secret token, which GitLab
// sends. A webhook of GitLab can have one of each, and one of them suffices.
func verifyGitLab(secrets [][]byte, r *Request) (Delivery, error) {
	keys, tokens := signingKeys(secrets)
	event, err := one(r.Header, "X-Gitlab-Event")
	if err != nil {
		return Delivery{}, err
	}
	d, err := verifySigned(keys, r)
	if err != nil && len(tokens) > 0 {
		signed := len(keys) > 0 && r.Header.Get(standardSignature) != ""
		if byToken, wrong := verifyToken(tokens, r); wrong == nil || !signed {
			d, err = byToken, wrong
		}
	}
	d.Event = clean(event, maxEvent)
	return d, err
}

// verifyToken compares the secret token that GitLab sends. The header Idempotency-Key is the same when GitLab repeats
// the delivery. Versions before 17.4 do not send it, and X-Gitlab-Event-UUID does not replace it, because all
// deliveries that a webhook causes in turn have the same.
func verifyToken(tokens [][]byte, r *Request) (d Delivery, err error) {
	const header = "X-Gitlab-Token"
	given, err := need(r.Header, header)
	if err != nil {
		return d, err
	}
	right, hash := false, sha256.Sum256([]byte(given))
	for _, token := range tokens {
		expected := sha256.Sum256(token)
		if len(token) > 0 && hmac.Equal(expected[:], hash[:]) {
			right = true
		}
	}
	if !right {
		return d, unauthorized("the token in the header %s is wrong", header)
	}
	id, err := one(r.Header, "Idempotency-Key")
	return Delivery{ID: identify(id, r.Body)}, err
}
