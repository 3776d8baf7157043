package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	keyColumns    = "id, name, scopes, hash, created_at, revoked_at"
	selectAPIKeys = "SELECT " + keyColumns + " FROM api_keys ORDER BY created_at, id"
	lockAPIKeys   = "SELECT k.* FROM (SELECT unnest($1::uuid[]) AS id) u CROSS JOIN LATERAL (SELECT " + keyColumns + " FROM api_keys WHERE id = u.id FOR NO KEY UPDATE) k"
	insertAPIKeys = "INSERT INTO api_keys (" + keyColumns + ") SELECT unnest($1::uuid[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bytea[]), unnest($5::bigint[]), unnest($6::bigint[])"
	revocation    = "UPDATE api_keys k SET revoked_at = u.at FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::bigint[]) AS at) u WHERE k.id = u.id"
)

var revokeAPIKeys = counted(revocation, 2)

func scanAPIKey(r columns) (*machine.APIKey, error) {
	k := &machine.APIKey{ID: r.id(0), Name: r.text(1), Hash: r.hash(3), CreatedAt: r.time(4), RevokedAt: r.time(5)}
	if err := json.Unmarshal(r[2], &k.Scopes); err != nil {
		return nil, fmt.Errorf("read the scopes of key %s: %w", k.ID, err)
	}
	return k, nil
}

// APIKeys implements store.Store.
func (s *Store) APIKeys(ctx context.Context) ([]*machine.APIKey, error) {
	var all []*machine.APIKey
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		all = nil
		p.add(selectAPIKeys, func(r columns) error {
			k, err := scanAPIKey(r)
			all = append(all, k)
			return err
		})
	})
	return all, classify("keys", err)
}

func (t *tx) loadAPIKeys(p *pipe, all []belay.KeyID) {
	if len(all) == 0 {
		return
	}
	s := p.add(lockAPIKeys, func(r columns) error {
		k, err := scanAPIKey(r)
		t.rows.APIKeys = append(t.rows.APIKeys, k)
		return err
	})
	idList(s, all)
}

// writeAPIKeys adds keys and revokes those that are there.
func (t *tx) writeAPIKeys(p *pipe, c *machine.Changes) error {
	fresh, revoked := split(c.APIKeys, func(k *machine.APIKey) bool { return k.New })
	if len(fresh) > 0 {
		scopes := make([]string, len(fresh))
		for i, k := range fresh {
			b, err := json.Marshal(k.Scopes)
			if err != nil {
				return err
			}
			scopes[i] = string(b)
		}
		s := p.add(insertAPIKeys, nil)
		uuids(s, fresh, func(k *machine.APIKey) [16]byte { return k.ID })
		texts(s, fresh, func(k *machine.APIKey) string { return k.Name })
		texts(s, scopes, func(s string) string { return s })
		hashes(s, fresh, func(k *machine.APIKey) *[32]byte { return &k.Hash })
		ints(s, int8s, fresh, func(k *machine.APIKey) int64 { return int64(k.CreatedAt) })
		ints(s, int8OrNull, fresh, func(k *machine.APIKey) int64 { return int64(k.RevokedAt) })
	}
	if len(revoked) > 0 {
		s := change(p, revokeAPIKeys, "keys", len(revoked))
		uuids(s, revoked, func(k *machine.APIKey) [16]byte { return k.ID })
		ints(s, int8OrNull, revoked, func(k *machine.APIKey) int64 { return int64(k.RevokedAt) })
		s.int(int64(len(revoked)))
	}
	return nil
}
