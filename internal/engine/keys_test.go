package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// On the server that makes and revokes a key, the key works exactly from its creation to its
// revocation. Other servers notice the creation and the revocation within five seconds.
func TestAKeyWorksUntilItIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(time.Now)
		here, there := engine.New(s, engine.Options{}), engine.New(s, engine.Options{})
		defer here.Close()
		defer there.Close()
		ctx := t.Context()
		if must[bool](t)(here.HasKeys(ctx)) || must[bool](t)(there.HasKeys(ctx)) {
			t.Fatal("there is a key before any was made")
		}
		k := must[belay.NewKey](t)(here.CreateKey(ctx, belay.KeySpec{
			Name: "ci", Scopes: []belay.Scope{belay.ScopeRead, belay.ScopeSubmit},
		}))
		if !strings.HasPrefix(k.Secret, "bly_") || len(k.Secret) != 56 {
			t.Errorf("the secret has %d characters", len(k.Secret))
		}
		got := must[belay.Key](t)(here.KeyOf(ctx, k.Secret))
		if got.ID != k.ID || got.Name != "ci" || !got.Allows(belay.ScopeSubmit) || got.Allows(belay.ScopeAdmin) ||
			!must[bool](t)(here.HasKeys(ctx)) {
			t.Errorf("the key is %+v", got)
		}
		time.Sleep(5 * time.Second)
		must[belay.Key](t)(there.KeyOf(ctx, k.Secret))
		if err := here.RevokeKey(ctx, belay.Revocation{Key: k.ID}); err != nil {
			t.Fatal(err)
		}
		_, err := here.KeyOf(ctx, k.Secret)
		refusal(t, err, belay.CodeUnauthorized, "")
		must[belay.Key](t)(there.KeyOf(ctx, k.Secret)) // the other server has not noticed the revocation yet
		time.Sleep(5 * time.Second)
		_, err = there.KeyOf(ctx, k.Secret)
		refusal(t, err, belay.CodeUnauthorized, "")
		if must[bool](t)(here.HasKeys(ctx)) || must[bool](t)(there.HasKeys(ctx)) {
			t.Error("a revoked key counts")
		}
		if all := must[[]belay.Key](t)(there.Keys(ctx)); len(all) != 1 || all[0].RevokedAt.IsZero() {
			t.Errorf("keys %+v", all)
		}
		for _, secret := range []string{"", "bly_", "bly_" + strings.Repeat("0", 52), "Basic x"} {
			_, err := here.KeyOf(ctx, secret)
			refusal(t, err, belay.CodeUnauthorized, "")
		}
	})
}

// The audit names the actor who made a key and the actor who revoked it, if the caller named them.
func TestChangesOfKeysAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(time.Now)
		e := engine.New(s, engine.Options{})
		defer e.Close()
		k := must[belay.NewKey](t)(e.CreateKey(t.Context(), belay.KeySpec{
			Name: "ci", Scopes: []belay.Scope{belay.ScopeRead}, Actor: "me",
		}))
		for range 2 { // the second time, the key is already revoked
			if err := e.RevokeKey(t.Context(), belay.Revocation{Key: k.ID, Actor: "you"}); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, a := range must[store.Found](t)(s.Query(t.Context(), store.Query{Of: store.Trail})).Trail {
			if a.ObjectRef != machine.KeyRef(k.ID) || a.At == 0 {
				t.Errorf("%+v", a)
			}
			got = append(got, a.Actor+" "+a.Action)
		}
		if want := []string{"you revoke", "me create"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		objects := must[[]*machine.Object](t)(store.All(t.Context(), s, machine.KeyObject))
		if len(objects) != 1 || objects[0].UpdatedBy != "you" || strings.Contains(string(objects[0].Body), k.Secret) {
			t.Errorf("%+v", objects)
		}
	})
}

// slowKeys is a store whose keys can be read only while the test allows it.
type slowKeys struct {
	store.Store
	mu   sync.Mutex
	hold chan struct{} // if set, reads wait until it is closed
}

func (s *slowKeys) Query(ctx context.Context, q store.Query) (store.Found, error) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return store.Found{}, context.Cause(ctx)
		}
	}
	return s.Store.Query(ctx, q)
}

func (s *slowKeys) slow(hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = hold
}

// While the store is too slow to read the keys again, known keys are valid for up to a minute, so
// that workers are not locked out. During that time a request with an unknown key is refused with
// CodeUnavailable, because the key may be new, and a key that was revoked on this server is
// refused.
func TestKnownKeysCountDuringASlowRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowKeys{Store: memory.New(time.Now)}
		e := engine.New(s, engine.Options{})
		defer e.Close()
		ctx := t.Context()
		k := must[belay.NewKey](t)(e.CreateKey(ctx, belay.KeySpec{
			Name: "ci", Scopes: []belay.Scope{belay.ScopeWorker},
		}))
		other := must[belay.NewKey](t)(e.CreateKey(ctx, belay.KeySpec{
			Name: "old", Scopes: []belay.Scope{belay.ScopeWorker},
		}))
		must[belay.Key](t)(e.KeyOf(ctx, k.Secret))
		hold := make(chan struct{})
		s.slow(hold)
		for _, c := range []struct{ after, most time.Duration }{
			{4 * time.Second, 0}, {10 * time.Second, 0}, {40 * time.Second, 0},
		} {
			time.Sleep(c.after)
			at := time.Now()
			must[belay.Key](t)(e.KeyOf(ctx, k.Secret))
			if took := time.Since(at); took > c.most {
				t.Errorf("after %s a request waited %s", c.after, took)
			}
		}
		_, err := e.KeyOf(ctx, "bly_"+strings.Repeat("0", 52))
		refusal(t, err, belay.CodeUnavailable, "")
		if err := e.RevokeKey(ctx, belay.Revocation{Key: other.ID}); err != nil {
			t.Fatal(err)
		}
		_, err = e.KeyOf(ctx, other.Secret)
		refusal(t, err, belay.CodeUnauthorized, "")
		must[belay.Key](t)(e.KeyOf(ctx, k.Secret))
		s.slow(nil)
		close(hold)
		_, err = e.KeyOf(ctx, other.Secret)
		refusal(t, err, belay.CodeUnauthorized, "")
	})
}

// If the keys could not be read again for a minute, the known keys are not valid any more.
func TestUnreadableKeysExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowKeys{Store: memory.New(time.Now)}
		e := engine.New(s, engine.Options{})
		defer e.Close()
		ctx := t.Context()
		k := must[belay.NewKey](t)(e.CreateKey(ctx, belay.KeySpec{
			Name: "ci", Scopes: []belay.Scope{belay.ScopeWorker},
		}))
		must[belay.Key](t)(e.KeyOf(ctx, k.Secret))
		hold := make(chan struct{})
		s.slow(hold)
		time.Sleep(61 * time.Second)
		brief, done := context.WithTimeout(ctx, 10*time.Second)
		defer done()
		_, err := e.KeyOf(brief, k.Secret)
		refusal(t, err, belay.CodeUnavailable, "")
		close(hold)
		must[belay.Key](t)(e.KeyOf(ctx, k.Secret))
	})
}

// For the same key and message, Seal returns the same HMAC on all servers of a store. Another key or
// another message gives another HMAC. For a revoked or unknown key, Seal returns an error.
func TestServersComputeTheSameCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(time.Now)
		here, there := engine.New(s, engine.Options{}), engine.New(s, engine.Options{})
		defer here.Close()
		defer there.Close()
		ctx := t.Context()
		read := []belay.Scope{belay.ScopeRead}
		k := must[belay.NewKey](t)(here.CreateKey(ctx, belay.KeySpec{Name: "a", Scopes: read}))
		other := must[belay.NewKey](t)(here.CreateKey(ctx, belay.KeySpec{Name: "b", Scopes: read}))
		time.Sleep(5 * time.Second)
		seal := func(e *engine.Engine, id belay.KeyID, message string) [32]byte {
			t.Helper()
			key, code, err := e.Seal(ctx, id, []byte(message))
			if err != nil || key.ID != id {
				t.Fatalf("the key is %+v, %v", key, err)
			}
			return code
		}
		code := seal(here, k.ID, "one")
		if code != seal(there, k.ID, "one") || code == seal(there, k.ID, "two") ||
			code == seal(here, other.ID, "one") || code == ([32]byte{}) {
			t.Error("the codes do not tell keys and messages apart, or differ between servers")
		}
		if err := here.RevokeKey(ctx, belay.Revocation{Key: k.ID}); err != nil {
			t.Fatal(err)
		}
		_, _, err := here.Seal(ctx, k.ID, []byte("one"))
		refusal(t, err, belay.CodeUnauthorized, "")
		seal(there, k.ID, "one") // the revocation is not noticed yet
		time.Sleep(5 * time.Second)
		_, _, err = there.Seal(ctx, k.ID, []byte("one"))
		refusal(t, err, belay.CodeUnauthorized, "")
		_, _, err = here.Seal(ctx, belay.KeyID{1}, []byte("one"))
		refusal(t, err, belay.CodeUnauthorized, "")
	})
}

// A sign-out ends the sessions that last until its time or end earlier, here at once and at the other server after five
// seconds at the latest. Tokens of other kinds stay valid.
func TestASignOutReachesOtherServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := memory.New(time.Now), t.Context()
		here, there := engine.New(s, engine.Options{}), engine.New(s, engine.Options{})
		defer here.Close()
		defer there.Close()
		k := must[belay.NewKey](t)(here.CreateKey(ctx, belay.KeySpec{
			Name: "a", Scopes: []belay.Scope{belay.ScopeRead},
		}))
		time.Sleep(6 * time.Second)
		ends := time.Now().Add(time.Hour)
		opens := func(e *engine.Engine, until time.Time) bool {
			_, _, err := e.Session(ctx, k.ID, until, []byte("m"))
			if err != nil && belay.CodeOf(err) != belay.CodeUnauthorized {
				t.Fatal(err)
			}
			return err == nil
		}
		if !opens(here, ends) || !opens(there, ends) {
			t.Fatal("the session is not valid")
		}
		if err := here.SignOut(ctx, k.ID, ends); err != nil {
			t.Fatal(err)
		}
		if opens(here, ends) || opens(here, ends.Add(-time.Minute)) || !opens(here, ends.Add(time.Millisecond)) {
			t.Error("another session has ended than the one that was signed out")
		}
		time.Sleep(5 * time.Second)
		if opens(there, ends) || !opens(there, ends.Add(time.Millisecond)) {
			t.Error("the other server does not know the sign-out")
		}
		if _, _, err := here.Seal(ctx, k.ID, []byte("m")); err != nil {
			t.Error(err)
		}
		refusal(t, here.SignOut(ctx, k.ID, time.Now().Add(25*time.Hour)), belay.CodeInvalid, "")
	})
}

// A call examines a bounded part of the audit, and its cursor leads to the rest.
func TestTheAuditIsReadInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := memory.New(time.Now), t.Context()
		e := engine.New(s, engine.Options{})
		defer e.Close()
		must[belay.NewKey](t)(e.CreateKey(ctx, belay.KeySpec{
			Name: "a", Scopes: []belay.Scope{belay.ScopeRead}, Actor: "ann",
		}))
		time.Sleep(time.Second)
		for i := range 10_500 {
			action := belay.GatePause
			if i%2 == 1 {
				action = belay.GateResume
			}
			change := belay.GateChange{Gate: "queue:q", Action: action, Actor: "bob"}
			must[belay.GateDetail](t)(e.ChangeGate(ctx, change))
		}
		_, err := e.Audit(ctx, belay.AuditFilter{Cursor: "1/1/gate/a\x00"}) // no store takes this character
		refusal(t, err, belay.CodeInvalid, "")
		f := belay.AuditFilter{Actor: "ann"}
		page := must[belay.AuditPage](t)(e.Audit(ctx, f))
		if len(page.Entries) != 0 || page.Next == "" {
			t.Fatalf("the first page has %d entries, and the cursor %q", len(page.Entries), page.Next)
		}
		f.Cursor = page.Next
		page = must[belay.AuditPage](t)(e.Audit(ctx, f))
		if len(page.Entries) != 1 || page.Entries[0].Action != "create" || page.Next != "" {
			t.Errorf("the second page is %+v", page)
		}
	})
}
