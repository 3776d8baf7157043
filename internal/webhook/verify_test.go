package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// Rule: the signatures that senders publish are right.
func TestVectors(t *testing.T) {
	for _, v := range vectors() {
		got, err := v.verify(v.request())
		if err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
		if diff := cmp.Diff(v.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", v.name, diff)
		}
	}
}

// refuse fails the test if a request is verified, or refused with another code.
func refuse(t *testing.T, v *vector, r *Request, what string) {
	t.Helper()
	got, err := v.verify(r)
	if belay.CodeOf(err) != belay.CodeUnauthorized || err == nil {
		t.Errorf("%s, %s: the error is %v", v.name, what, err)
	}
	if got != (Delivery{}) {
		t.Errorf("%s, %s: a refused request has the delivery %+v", v.name, what, got)
	}
	if err != nil && strings.Contains(err.Error(), v.secret) {
		t.Errorf("%s, %s: the error has the secret: %v", v.name, what, err)
	}
}

// flips calls f with every text that differs from a text in one bit.
func flips(text string, f func(bit int, changed string)) {
	for bit := range 8 * len(text) {
		changed := []byte(text)
		changed[bit/8] ^= 1 << (bit % 8)
		f(bit, string(changed))
	}
}

// Rule: a change of one bit anywhere in the body, the time, the signed id or the signature is refused.
func TestEveryChangedBitIsRefused(t *testing.T) {
	for _, v := range vectors() {
		if !v.open {
			flips(v.body, func(_ int, changed string) {
				r := v.request()
				r.Body = []byte(changed)
				refuse(t, v, r, "the body is "+changed)
			})
		}
		for _, name := range v.signed {
			flips(v.header[name], func(_ int, changed string) {
				r := v.request()
				r.Header.Set(name, changed)
				refuse(t, v, r, name+" is "+changed)
			})
		}
	}
}

// Rule: a signature is complete, and nothing follows it.
func TestLengthOfSignatures(t *testing.T) {
	for _, v := range vectors() {
		value := v.header[v.signed[0]]
		for _, changed := range []string{
			"", value[:len(value)-1], value[:len(value)/2], value + "0", value + "=", value + "\n",
			value + value[len(value)-4:],
		} {
			r := v.request()
			r.Header.Set(v.signed[0], changed)
			refuse(t, v, r, v.signed[0]+" is "+changed)
		}
	}
}

// Rule: either of two secrets verifies, and nothing else does: no other secret, no empty one, and no empty list.
func TestSecrets(t *testing.T) {
	for _, v := range vectors() {
		right, other := []byte(v.secret), []byte("another secret")
		for _, secrets := range [][][]byte{{right, other}, {other, right}, {nil, right}} {
			if _, err := Verify(v.scheme, v.hmac, secrets, v.request()); err != nil {
				t.Errorf("%s with the secrets %q: %v", v.name, secrets, err)
			}
		}
		for _, secrets := range [][][]byte{
			nil, {}, {nil}, {{}, {}}, {other}, {other, append(right, 'x')}, {right[:len(right)-1]}, {[]byte("whsec_")},
			{[]byte("whsec_*")},
		} {
			if _, err := Verify(v.scheme, v.hmac, secrets, v.request()); belay.CodeOf(err) != belay.CodeUnauthorized {
				t.Errorf("%s with the secrets %q: %v", v.name, secrets, err)
			}
		}
	}
}

// Rule: what an empty secret has signed is refused.
func TestEmptySecret(t *testing.T) {
	mac := hmac.New(sha256.New, nil)
	mac.Write([]byte("Hello, World!"))
	v := named(t, "github")
	r := v.request()
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	for _, secrets := range [][][]byte{{nil}, {{}}, nil} {
		if _, err := Verify(v.scheme, nil, secrets, r); err == nil {
			t.Errorf("the secrets %q have verified", secrets)
		}
	}
	v = named(t, "gitlab secret token")
	for _, value := range []string{"", "whsec_"} {
		r = v.request()
		r.Header.Set("X-Gitlab-Token", value)
		if _, err := Verify(v.scheme, nil, [][]byte{[]byte(value)}, r); err == nil {
			t.Errorf("the token %q has verified", value)
		}
	}
	v = named(t, "standard")
	mac = hmac.New(sha256.New, nil)
	mac.Write([]byte(v.header[standardID] + "." + v.header[standardTimestamp] + "." + v.body))
	r = v.request()
	r.Header.Set(standardSignature, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	if _, err := Verify(v.scheme, nil, [][]byte{[]byte("whsec_")}, r); err == nil {
		t.Error("the empty key in whsec_ has verified")
	}
}

// Rule: a signed time may be as far from the server's as the tolerance, in both directions, and no further.
func TestTolerance(t *testing.T) {
	const most = belay.WebhookTolerance
	timed := 0
	for _, v := range vectors() {
		if v.want.At.IsZero() {
			continue
		}
		timed++
		for _, c := range []struct {
			after time.Duration
			says  string
		}{
			{-most - time.Second, "5m1s ahead"}, {-most - 1, "ahead"}, {-most, ""}, {-most + time.Second, ""}, {0, ""},
			{most - time.Second, ""}, {most, ""}, {most + 1, "ago"}, {most + time.Second, "5m1s ago"},
			{12 * time.Minute, "12m0s ago"}, {1 << 62, "ago"},
		} {
			r := v.request()
			r.Now = v.want.At.Add(c.after)
			_, err := v.verify(r)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s at %s: the error is %v, want %q", v.name, c.after, err, c.says)
			}
		}
	}
	if timed != 5 {
		t.Errorf("%d vectors have a time, want 5", timed)
	}
}

// Rule: a time is a number in decimal digits, which cannot overflow.
func TestTimesAreDigits(t *testing.T) {
	for _, text := range []string{
		"", "+1614265330", "-1614265330", " 1614265330", "1614265330 ", "1614265330.0", "0x6036A0F2",
		"1_614_265_330", "1e9", "١٦١٤٢٦٥٣٣٠", "9223372036854775807", "9223372036854775808", "18446744075323816946",
		"100000000000", "99999999999", "0", strings.Repeat("9", 1000),
	} {
		// The signature is right, so that only the time can be wrong.
		v := named(t, "standard")
		r, key := v.request(), []byte("key")
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(v.header[standardID] + "." + text + "." + v.body))
		r.Header.Set(standardTimestamp, text)
		r.Header.Set(standardSignature, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		says := "is not a number"
		switch text {
		case "":
			says = "is missing"
		case "0":
			says = "ago"
		case "99999999999":
			says = "ahead"
		}
		if _, err := Verify(v.scheme, nil, [][]byte{key}, r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the time is %q: the error is %v, want %q", text, err, says)
		}
	}
}

// Rule: a request without a header that the scheme needs is refused, and so is a request that repeats a header that
// Verify reads.
func TestMissingAndRepeatedHeaders(t *testing.T) {
	for _, v := range vectors() {
		for name, value := range v.header {
			if name == "Content-Type" {
				continue
			}
			r := v.request()
			r.Header.Add(name, value)
			refuse(t, v, r, name+" is repeated")
		}
		for _, name := range v.signed {
			r := v.request()
			r.Header.Del(name)
			refuse(t, v, r, name+" is missing")
			r.Header.Set(name, "")
			refuse(t, v, r, name+" is empty")
		}
	}
}

// Rule: errors say what is wrong.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ vector, header, value, says string }{
		{"github", "X-Hub-Signature-256", "", "the header X-Hub-Signature-256 is missing"},
		{"github", "X-Hub-Signature-256", "sha1=00", "the header X-Hub-Signature-256 does not begin with sha256="},
		{"github", "X-Hub-Signature-256", "sha256=00", "the signature in the header X-Hub-Signature-256 is wrong"},
		{"standard", standardTimestamp, "now", "the time in the header Webhook-Timestamp is not a number"},
		{"standard", standardID, "a.b", "the header Webhook-Id contains a dot"},
		{"gitlab secret token", "X-Gitlab-Token", "x", "the token in the header X-Gitlab-Token is wrong"},
		{"gitlab signing token", standardSignature, "v1,x", "the signature in the header Webhook-Signature is wrong"},
		{"stripe", "Stripe-Signature", "v1=00", "the header Stripe-Signature has no time"},
		{"stripe", "Stripe-Signature", "t=1,t=1,v1=00", "the header Stripe-Signature has two times"},
	} {
		v := named(t, c.vector)
		r := v.request()
		r.Header.Set(c.header, c.value)
		if _, err := v.verify(r); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s with %s %q: the error is %v, want %q", c.vector, c.header, c.value, err, c.says)
		}
	}
}

// Rule: the expected signature is in no error, even if only its last character is wrong.
func TestErrorsKeepTheSignature(t *testing.T) {
	for _, v := range vectors() {
		r, value := v.request(), v.header[v.signed[0]]
		part := value[len(value)-12 : len(value)-2]
		r.Header.Set(v.signed[0], value[:len(value)-2]+"??")
		if _, err := v.verify(r); err == nil || strings.Contains(err.Error(), part) {
			t.Errorf("%s: the error is %v, and must not have %s", v.name, err, part)
		}
	}
}

// Rule: a list of signatures is right if one of them is, and only signatures of the known version count.
func TestListsOfSignatures(t *testing.T) {
	const stripe, standard = "Stripe-Signature", standardSignature
	wrong := strings.Repeat("0", 64)
	good := named(t, "stripe").header[stripe]
	sig := strings.TrimPrefix(good, "t=1533204620,v1=")
	v1 := named(t, "standard").header[standard]
	for _, c := range []struct {
		vector, header, value string
		right                 bool
	}{
		{"stripe", stripe, good + ",v1=" + wrong, true},
		{"stripe", stripe, good + ",v0=" + wrong, true},
		{"stripe", stripe, "t=1533204620,v1=" + wrong + ",v1=" + sig, true},
		{"stripe", stripe, "v1=" + sig + ",t=1533204620", true},
		{"stripe", stripe, "t=1533204620,v0=" + sig, false},
		{"stripe", stripe, "t=1533204620,v2=" + sig, false},
		{"stripe", stripe, "t=1533204620", false},
		{"stripe", stripe, "t=1533204620,v1", false},
		{"stripe", stripe, good + ",t=1533204620", false},
		{"stripe", stripe, "t=,v1=" + sig, false},
		{"stripe", stripe, "t,v1=,v0=", false},
		{"stripe", stripe, ",,", false},
		{"standard", standard, "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= " + v1, true},
		{"standard", standard, "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5B " + v1, true},
		{"standard", standard, "v2" + strings.TrimPrefix(v1, "v1"), false},
		{"standard", standard, "v1,", false},
		{"standard", standard, strings.TrimPrefix(v1, "v1,"), false},
		{"standard", standard, strings.TrimSuffix(v1, "="), false},
		{"standard", standard, "v1,x," + strings.TrimPrefix(v1, "v1,"), false},
	} {
		v := named(t, c.vector)
		r := v.request()
		r.Header.Set(c.header, c.value)
		if _, err := v.verify(r); (err == nil) != c.right {
			t.Errorf("%s with %q: %v", c.vector, c.value, err)
		}
	}
}

// Rule: a secret without whsec_ is the key itself, and its Base64 is not decoded.
func TestStandardRawSecret(t *testing.T) {
	v := named(t, "standard")
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(v.secret, signingPrefix))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(v.scheme, nil, [][]byte{key}, v.request()); err != nil {
		t.Error(err)
	}
	text := []byte(strings.TrimPrefix(v.secret, signingPrefix))
	if _, err := Verify(v.scheme, nil, [][]byte{text}, v.request()); err == nil {
		t.Error("a secret without whsec_ was decoded")
	}
}

// Rule: hexadecimal digits of the scheme hmac are all in lower case or all in upper case.
func TestCaseOfHex(t *testing.T) {
	v := named(t, "hmac")
	const name = "X-Gitea-Signature"
	r := v.request()
	r.Header.Set(name, strings.ToUpper(v.header[name]))
	if _, err := v.verify(r); err != nil {
		t.Error(err)
	}
	r.Header.Set(name, strings.ToUpper(v.header[name][:32])+v.header[name][32:])
	refuse(t, v, r, "mixed case")
	v = named(t, "github")
	r = v.request()
	digits := strings.TrimPrefix(v.header["X-Hub-Signature-256"], "sha256=")
	r.Header.Set("X-Hub-Signature-256", "sha256="+strings.ToUpper(digits))
	refuse(t, v, r, "upper case")
}

// Rule: GitLab's token and its signature each suffice, and a signing token is never accepted as a token.
func TestGitLabTokens(t *testing.T) {
	signed, plain := named(t, "gitlab signing token"), named(t, "gitlab secret token")
	both := [][]byte{[]byte(signed.secret), []byte(plain.secret)}
	for _, c := range []struct {
		name    string
		secrets [][]byte
		change  func(*Request)
		id      string
		says    string
	}{
		{"signature", both, func(*Request) {}, signed.want.ID, ""},
		{"token", both, func(r *Request) {
			r.Header.Del(standardSignature)
			r.Header.Set("X-Gitlab-Token", plain.secret)
			r.Header.Set("Idempotency-Key", "7")
		}, "7", ""},
		{"token and signature of another key", both, func(r *Request) {
			r.Header.Set(standardSignature, "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=")
			r.Header.Set("X-Gitlab-Token", plain.secret)
		}, sum([]byte(signed.body)), ""},
		{"old signature", both, func(r *Request) { r.Now = r.Now.Add(time.Hour) }, "", "1h0m0s ago"},
		{"neither", both, func(r *Request) { r.Header.Del(standardSignature) }, "", "X-Gitlab-Token is missing"},
		{"signing token as token", both[:1], func(r *Request) {
			r.Header.Del(standardSignature)
			r.Header.Set("X-Gitlab-Token", signed.secret)
		}, "", "Webhook-Signature is missing"},
		{"signature without key", both[1:], func(*Request) {}, "", "X-Gitlab-Token is missing"},
		{"no secrets", nil, func(*Request) {}, "", "wrong"},
	} {
		r := signed.request()
		c.change(r)
		d, err := Verify(belay.SchemeGitLab, nil, c.secrets, r)
		if d.ID != c.id || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the id is %q, the error %v, want %q and %q", c.name, d.ID, err, c.id, c.says)
		}
	}
}

// Rule: only GitHub's event ping is a ping, and it is verified like others.
func TestPing(t *testing.T) {
	v := named(t, "github")
	for _, event := range []string{"ping", "push", "PING", ""} {
		r := v.request()
		r.Header.Set("X-GitHub-Event", event)
		if d, err := v.verify(r); err != nil || d.Ping != (event == "ping") || d.Event != event {
			t.Errorf("%q: %+v, %v", event, d, err)
		}
	}
	v = named(t, "gitlab secret token")
	r := v.request()
	r.Header.Set("X-Gitlab-Event", "ping")
	if d, err := v.verify(r); err != nil || d.Ping {
		t.Errorf("gitlab: %+v, %v", d, err)
	}
}

// Rule: an id is printable and short; a delivery without one has the hash of its body.
func TestIDs(t *testing.T) {
	long := strings.Repeat("i", 150)
	for _, c := range []struct{ given, want string }{
		{"", helloSum}, {"a", "a"}, {"a~b", "a~b"}, {"a b", sum([]byte("a b"))}, {long, long},
		{long + "i", sum([]byte(long + "i"))},
		{"a\tb", sum([]byte("a\tb"))}, {"ü", sum([]byte("ü"))}, {"\xff", sum([]byte("\xff"))},
	} {
		v := named(t, "github")
		r := v.request()
		r.Header.Set("X-GitHub-Delivery", c.given)
		if d, err := v.verify(r); err != nil || d.ID != c.want {
			t.Errorf("%q: the id is %q, want %q, %v", c.given, d.ID, c.want, err)
		}
	}
}

// Rule: an event is printable, valid UTF-8 and at most 100 bytes long.
func TestEvents(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"issues", "issues"}, {" a\x00b\u202e ", "a b"}, {"\xff", "\ufffd"},
		{strings.Repeat("e", 101), strings.Repeat("e", 100)},
		{strings.Repeat("e", 99) + "ü", strings.Repeat("e", 99)},
	} {
		v := named(t, "github")
		r := v.request()
		r.Header.Set("X-GitHub-Event", c.given)
		if d, err := v.verify(r); err != nil || d.Event != c.want {
			t.Errorf("%q: the event is %q, want %q, %v", c.given, d.Event, c.want, err)
		}
	}
}

// Rule: a wrong scheme or description is CodeInvalid, before anything is read.
func TestVerifyChecks(t *testing.T) {
	for _, c := range []struct {
		scheme belay.WebhookScheme
		hmac   *belay.WebhookHMAC
	}{{"", nil}, {"none", nil}, {belay.SchemeHMAC, nil}, {belay.SchemeGitHub, &belay.WebhookHMAC{Header: "X"}}} {
		if _, err := Verify(c.scheme, c.hmac, [][]byte{{1}}, &Request{}); belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%q: %v", c.scheme, err)
		}
	}
}

// Rule: signatures and tokens are compared by hmac.Equal only.
func TestComparisonsTakeConstantTime(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	sums, equals := 0, 0
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "_test.go") || !strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		data, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, unwanted := range []string{"bytes.Equal", "bytes.Compare", "reflect.DeepEqual", "slices.Equal"} {
			if strings.Contains(string(data), unwanted) {
				t.Errorf("%s uses %s", f.Name(), unwanted)
			}
		}
		sums += strings.Count(string(data), "mac.Sum(") + strings.Count(string(data), ":= sha256.Sum256(token)")
		equals += strings.Count(string(data), "hmac.Equal(")
	}
	if sums != 2 || equals != 2 {
		t.Errorf("%d hashes of secrets and %d constant comparisons, want 2 of each", sums, equals)
	}
}

// Rule: Verify never panics. A request that it accepts has a short and printable id, a printable event, and a time
// near to the server's, and it is refused with another body or another secret.
func FuzzVerify(f *testing.F) {
	all := vectors()
	for i, v := range all {
		first, last := v.signed[0], v.signed[len(v.signed)-1]
		f.Add(uint8(i), v.header[first], v.header[last], "id", "push", []byte(v.body))
	}
	f.Fuzz(func(t *testing.T, which uint8, first, last, id, event string, body []byte) {
		v := all[int(which)%len(all)]
		r := v.request()
		r.Body = body
		r.Header.Set("X-GitHub-Event", event)
		r.Header.Set("X-GitHub-Delivery", id)
		r.Header.Set(standardID, id)
		r.Header.Set(v.signed[0], first)
		r.Header.Set(v.signed[len(v.signed)-1], last)
		d, err := v.verify(r)
		if err != nil {
			var e *belay.Error
			known := errors.As(err, &e) && e.Code == belay.CodeUnauthorized
			if !known || strings.Contains(err.Error(), v.secret) || d != (Delivery{}) {
				t.Fatalf("%v, %+v", err, d)
			}
			return
		}
		if d.ID == "" || len(d.ID) > maxID || !printable(d.ID) {
			t.Fatalf("%+v", d)
		}
		if len(d.Event) > maxEvent || !utf8.ValidString(d.Event) {
			t.Fatalf("%+v", d)
		}
		if !d.At.IsZero() && r.Now.Sub(d.At).Abs() > belay.WebhookTolerance {
			t.Fatalf("%s at %s", d.At, r.Now)
		}
		if _, err := Verify(v.scheme, v.hmac, [][]byte{[]byte("another")}, r); err == nil {
			t.Fatal("another secret verifies")
		}
		r.Body = append(r.Body, '0')
		if _, err := v.verify(r); err == nil && !v.open {
			t.Fatal("another body verifies")
		}
	})
}
