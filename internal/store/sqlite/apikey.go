package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	apiKeyColumns = "id, name, scopes, hash, created_at, revoked_at" //nolint:gosec // names of columns
	selectAPIKeys = "SELECT " + apiKeyColumns + " FROM api_keys"
)

func scanAPIKey(r columns) (*machine.APIKey, error) {
	k := &machine.APIKey{
		ID: r.id(0), Name: r.text(1), Hash: r.hash(3), CreatedAt: machine.Time(r.int(4)), RevokedAt: machine.Time(r.int(5)),
	}
	if err := json.Unmarshal([]byte(r.text(2)), &k.Scopes); err != nil {
		return nil, fmt.Errorf("read the scopes of key %s: %w", k.ID, err)
	}
	return k, nil
}

// APIKeys implements store.Store.
func (s *Store) APIKeys(ctx context.Context) ([]*machine.APIKey, error) {
	var all []*machine.APIKey
	err := s.read(store.Urgent(ctx), func(ctx context.Context, c *conn) error {
		return c.query(ctx, selectAPIKeys+" ORDER BY created_at, id", func(r columns) error {
			k, err := scanAPIKey(r)
			all = append(all, k)
			return err
		})
	})
	return all, classify("keys", err)
}

func (t *tx) loadAPIKeys(rows *machine.Rows, ids []belay.KeyID) error {
	for _, id := range unique(ids) {
		t.args.blob(id[:])
		err := t.query(t.ctx, selectAPIKeys+" WHERE id = ?", func(r columns) error {
			k, err := scanAPIKey(r)
			rows.APIKeys = append(rows.APIKeys, k)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var apiKeyTable = newTable("api_keys", apiKeyColumns)

// writeAPIKeys adds keys and revokes those that are there.
func (t *tx) writeAPIKeys(c *machine.Changes) error {
	for _, k := range c.APIKeys {
		if !k.New {
			t.args.intOrNull(int64(k.RevokedAt))
			t.args.blob(k.ID[:])
			if err := t.changed("API key", k.ID, "UPDATE api_keys SET revoked_at = ? WHERE id = ?"); err != nil {
				return err
			}
			continue
		}
		scopes, err := json.Marshal(k.Scopes)
		if err != nil {
			return err
		}
		err = t.insert(t.ctx, apiKeyTable, 1, func(_ int, a *args) error {
			a.blob(k.ID[:])
			a.text(k.Name)
			a.text(string(scopes))
			a.blob(k.Hash[:])
			a.int(int64(k.CreatedAt))
			a.intOrNull(int64(k.RevokedAt))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
